//! The canonical form of the state kept between entries: the engine's canonical form, and the timer.

use super::entry::Driver;
use crate::engine::outbox::Answer;
use crate::engine::{self, Wake};
use crate::lock::time::MonotonicMicros;

/// The canonical form of a [`Driver`]. It leaves out timer IDs, which the server chooses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Canonical<H> {
    engine: engine::Canonical<H>,
    timer: Option<(Wake, MonotonicMicros)>,
    is_subscribed_to_keys: bool,
    is_subscribed_to_clients: bool,
}

impl<H: Clone, T> Driver<H, T> {
    /// The canonical form at `now`. `sent`: the answers that may yet arrive or fail.
    #[must_use]
    pub fn canonical(&self, sent: &[&Answer], now: MonotonicMicros) -> Canonical<H> {
        Canonical {
            engine: self.engine.canonical(sent, now),
            timer: self.timer.as_ref().map(|timer| (timer.wake, timer.at)),
            is_subscribed_to_keys: self.is_subscribed_to_keys,
            is_subscribed_to_clients: self.is_subscribed_to_clients,
        }
    }
}
