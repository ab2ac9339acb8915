//! The edge to the real server, through its module API: one file per subject.

mod channels;
mod clients;
mod keys;
mod operator;
mod replicas;
mod time;

use crate::driver::Writer;
use crate::server::api::context::Context;
use crate::server::state::{module, Module};

/// The server, for one entry.
pub struct ServerEdge<'c> {
    context: &'c Context,
    module: &'static Module,
    /// Who writes: a command changes keys in place.
    writer: Writer,
    /// Whether this is the timer itself, not another event that writes like the timer.
    is_timer: bool,
}

impl<'c> ServerEdge<'c> {
    /// Wraps one entry from the server; `writer`: a command or the timer.
    #[must_use]
    pub fn of(context: &'c Context, writer: Writer) -> Self {
        Self { context, module: module(), writer, is_timer: false }
    }

    /// Wraps an entry from the timer.
    #[must_use]
    pub fn of_timer(context: &'c Context) -> Self {
        Self { is_timer: true, ..Self::of(context, Writer::Timer) }
    }
}
