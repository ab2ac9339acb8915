//! What the module remembers outside the keys. Only the events change it.

use super::budget::Budget;
use super::counters::{Counter, Counters};
use super::cut_short::CutShort;
use super::gate::Gate;
use super::grantees::Grantees;
use super::key_name::KeyName;
use super::leftovers::Leftovers;
use super::outbox::Outbox;
use super::outstanding::{EndedSessions, Outstanding};
use super::predecessors::Predecessors;
use super::queue::Queues;
use super::result::Kept;
use super::sessions::Sessions;
use super::unclaimed::Claims;
use super::waits::Waits;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use crate::lock::token::{Token, Tokens};

/// What the module remembers. `H` is a waiting client's handle.
#[derive(Clone, Debug)]
pub struct Engine<H> {
    pub(super) tokens: Tokens,
    pub(super) queues: Queues<H>,
    /// The queues of earlier reigns, whose waiters are leaving.
    pub(super) dissolving: Vec<Queues<H>>,
    /// The sessions and unclaimed grants of earlier reigns, which are being dropped.
    pub(super) leftovers: Leftovers,
    pub(super) sessions: Sessions,
    pub(super) grantees: Grantees,
    pub(super) predecessors: Predecessors,
    pub(super) outstanding: Outstanding,
    pub(super) claims: Claims,
    /// The results kept for attempts that are not connected.
    pub(super) kept: Kept,
    pub(super) ended: EndedSessions,
    pub(super) cut_short: CutShort,
    pub(super) gate: Gate,
    pub(super) outbox: Outbox<H>,
    pub(super) counters: Counters,
    pub(super) waits: Waits,
    /// The latest timestamp that was written.
    pub(super) latest: UnixMicros,
    /// When all queues were last scanned.
    pub(super) scanned: MonotonicMicros,
    /// How many changes the server has reported for keys that somebody waits for.
    pub(super) reported: u64,
    /// Writes are postponed until this time, because the server did not let the module write.
    pub(super) postponed: Option<MonotonicMicros>,
    /// Lost grants and ended sessions are postponed until this time, because the server refused to write some of them.
    pub(super) rest_postponed: Option<MonotonicMicros>,
    /// The work that events may still do at once; the rest is left to the timer.
    pub(super) events: Budget,
    /// The answers that may still be sent at once.
    pub(super) answers: Budget,
}

impl<H> Default for Engine<H> {
    fn default() -> Self {
        Self {
            tokens: Tokens::new(),
            queues: Queues::default(),
            dissolving: Vec::new(),
            leftovers: Leftovers::default(),
            sessions: Sessions::default(),
            grantees: Grantees::default(),
            predecessors: Predecessors::default(),
            outstanding: Outstanding::default(),
            claims: Claims::default(),
            kept: Kept::default(),
            ended: EndedSessions::default(),
            cut_short: CutShort::default(),
            gate: Gate::default(),
            outbox: Outbox::default(),
            counters: Counters::default(),
            waits: Waits::default(),
            latest: UnixMicros::default(),
            scanned: MonotonicMicros::default(),
            reported: 0,
            postponed: None,
            rest_postponed: None,
            events: Budget::EVENTS,
            answers: Budget::ANSWERS,
        }
    }
}

impl<H> Engine<H> {
    #[must_use]
    pub const fn queues(&self) -> &Queues<H> {
        &self.queues
    }

    /// The locks that end with their connection.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The connection that was granted a lock, if known.
    #[must_use]
    pub fn grantee(&self, key: KeyName<'_>, token: Token) -> Option<u64> {
        let session = self.sessions.binding(key, token).map(|binding| binding.client);
        session.or_else(|| self.grantees.client(token))
    }

    /// Whether a lock is known to have been granted to this connection. Most grants are ruled out without their keys.
    #[must_use]
    pub fn is_grantee(&self, key: KeyName<'_>, token: Token, client: u64) -> bool {
        let may_be_its = self.sessions.holds(client) || self.grantees.client(token) == Some(client);
        may_be_its && self.grantee(key, token) == Some(client)
    }

    /// Allocates room for the connections of all remembered grants.
    pub fn make_room(&mut self) {
        self.grantees.reserve();
    }

    /// The grants that wait to be claimed.
    #[must_use]
    pub const fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Whether grants wait to be claimed, or to be passed on because they were not.
    #[must_use]
    pub fn has_unclaimed(&self) -> bool {
        !self.claims.is_empty() || self.outstanding.lost() > 0
    }

    /// Whether a lock or a wait ends with its connection.
    #[must_use]
    pub fn has_sessions(&self) -> bool {
        !self.sessions.is_empty() || self.queues.has_sessions() || self.claims.has_sessions()
    }

    /// Whether locks may be granted now.
    pub const fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// The gate, read-only.
    #[must_use]
    pub const fn gate_ref(&self) -> &Gate {
        &self.gate
    }

    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How long attempts waited.
    #[must_use]
    pub const fn waits(&self) -> &Waits {
        &self.waits
    }

    /// The waits, to be settled or reset.
    pub const fn waits_mut(&mut self) -> &mut Waits {
        &mut self.waits
    }

    /// Counts an event.
    pub fn count(&mut self, counter: Counter) {
        self.counters.add(counter);
    }

    /// The answers to be sent.
    pub const fn outbox(&mut self) -> &mut Outbox<H> {
        &mut self.outbox
    }

    /// The latest timestamp that was written.
    #[must_use]
    pub const fn latest(&self) -> UnixMicros {
        self.latest
    }
}
