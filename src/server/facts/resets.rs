//! Detects CONFIG RESETSTAT, which no server reports to a module: it shows in server statistics that otherwise only
//! grow.
//!
//! They are read once a second, which takes about 30 µs. A command filter would see the command itself, but would slow
//! down every command of every client. The module misses a reset if all of these numbers are larger a second later than
//! they were before it, which happens only on a server that has just started or was just reset.

use crate::lock::record::number;
use crate::lock::time::{Micros, MonotonicMicros};
use crate::server::api::context::Context;
use crate::server::clock;
use std::cell::Cell;
use std::ffi::CStr;

/// The numbers, from the section `stats` of INFO.
const FIELDS: [&CStr; 3] = [c"total_connections_received", c"total_commands_processed", c"total_net_input_bytes"];

/// How often they are read.
const EVERY: Micros = Micros(1_000_000);

/// The numbers when they were last read.
#[derive(Default)]
pub struct Resets {
    known: Cell<[u64; FIELDS.len()]>,
    read: Cell<MonotonicMicros>,
}

impl Resets {
    /// Whether the server's statistics were reset since the last check; checked on every tick.
    pub fn noticed(&self, context: &Context) -> bool {
        let now = clock::monotonic();
        if now.since(self.read.get()) < EVERY {
            return false;
        }
        self.read.set(now);
        let Some(stats) = context.server_section(c"stats") else { return false };
        let read = |field| stats.field(field).and_then(|text| number(text.as_bytes())).unwrap_or(u64::MAX);
        let numbers = FIELDS.map(read);
        let before = self.known.replace(numbers);
        numbers.iter().zip(&before).any(|(now, before)| now < before)
    }
}
