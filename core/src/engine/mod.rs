//! What the module remembers besides the keys, and what it decides from that: one `impl Engine` for each event.
//!
//! Nothing here writes a key or knows a server. A decision changes nothing but tokens; when it was written, the engine
//! is told, and only then does it change. Several parts stand on their own: [`queue`], [`sessions`], [`deadlock`],
//! [`outstanding`], [`gate`], [`predecessors`], [`counters`], [`outbox`]. Only the events touch more than one of them.

pub mod counters;
pub mod deadlock;
pub mod gate;
pub mod grant;
pub mod outbox;
pub mod outstanding;
pub mod predecessors;
pub mod queue;
pub mod search;
pub mod sessions;

mod acquire;
mod join;
mod leave;
mod release;
mod serve;
mod told;

pub use acquire::Wanted;
pub use join::{due, Blocked};
pub use release::{Left, Successor};
pub use serve::{Found, Iteration, KeyChange, Task, Wake, Why};
pub use told::{Caller, Shape};

use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use crate::lock::token::Tokens;
use counters::Counters;
use gate::Gate;
use outbox::Outbox;
use outstanding::{EndedSessions, Outstanding};
use predecessors::Predecessors;
use queue::Queues;
use sessions::Sessions;

/// A key of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyName<'n> {
    /// Its database.
    pub db: i32,
    /// Its name.
    pub name: &'n [u8],
}

/// Tells the time when it is asked, because that costs more than most decisions.
pub trait Clock: Copy {
    /// The wall clock.
    fn now(self) -> UnixMicros;
    /// A clock that is never set.
    fn monotonic(self) -> MonotonicMicros;
}

/// What the operator has set for the queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many clients may wait, and how many places may be reserved.
    pub waiters: usize,
    /// How long the place of a waiter that left is kept.
    pub place: Micros,
}

/// What the module remembers. `H`: how to reach a client that waits.
#[derive(Clone, Debug)]
pub struct Engine<H> {
    tokens: Tokens,
    queues: Queues<H>,
    sessions: Sessions,
    predecessors: Predecessors,
    outstanding: Outstanding,
    ended: EndedSessions,
    gate: Gate,
    outbox: Outbox<H>,
    counters: Counters,
    /// The latest timestamp that was written.
    latest: UnixMicros,
    /// When every line was last made ready.
    scanned: MonotonicMicros,
    /// Until when writing is put off: the server did not let the module write.
    postponed: Option<MonotonicMicros>,
    /// The same for lost grants and ended sessions alone: the server refused to write some of them.
    rest_postponed: Option<MonotonicMicros>,
}

impl<H> Default for Engine<H> {
    fn default() -> Self {
        Self {
            tokens: Tokens::new(),
            queues: Queues::default(),
            sessions: Sessions::default(),
            predecessors: Predecessors::default(),
            outstanding: Outstanding::default(),
            ended: EndedSessions::default(),
            gate: Gate::default(),
            outbox: Outbox::default(),
            counters: Counters::default(),
            latest: UnixMicros::default(),
            scanned: MonotonicMicros::default(),
            postponed: None,
            rest_postponed: None,
        }
    }
}

impl<H> Engine<H> {
    /// Who waits, and who has a place.
    #[must_use]
    pub const fn queues(&self) -> &Queues<H> {
        &self.queues
    }

    /// Which locks end with their connection.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Whether anything may be granted now.
    pub const fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// The same, to be looked at.
    #[must_use]
    pub const fn gate_ref(&self) -> &Gate {
        &self.gate
    }

    /// What has happened.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts one more.
    pub fn count(&mut self, counter: counters::Counter) {
        self.counters.add(counter);
    }

    /// Answers that are to be sent.
    pub const fn outbox(&mut self) -> &mut Outbox<H> {
        &mut self.outbox
    }

    /// The latest timestamp that was written.
    #[must_use]
    pub const fn latest(&self) -> UnixMicros {
        self.latest
    }
}
