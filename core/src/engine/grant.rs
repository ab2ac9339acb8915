//! The consequences of a decision about one lock: what is written, which events follow, and the reply to the holder.

use super::counters::Counter;
use crate::lock::admit::{Acquire, Holds, Predecessor};
use crate::lock::change::Write;
use crate::lock::record::{Encoded, Id, Owner, OwnerBuf, Record};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;

/// A keyspace event that is published in addition to that of the change itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A lock was granted.
    Acquire,
    /// A lock was granted to LOCK.RECOVER.
    Recover,
    /// A lease was extended.
    Extend,
    /// A lock was released.
    Release,
    /// A successor found the lock expired.
    Lapse,
}

/// A decision about one lock, copied out of its key and written next. The outcome has to be committed:
/// [`super::Engine::commit`] or [`Decision::not_written`].
#[derive(Debug)]
#[must_use]
pub struct Decision {
    pub(super) what: What,
    /// The released or unclaimed grant that ends with this write.
    pub(super) gives_back: Option<Token>,
    pub(super) events: &'static [Event],
    pub(super) counts: &'static [Counter],
    #[cfg(debug_assertions)]
    is_committed: bool,
}

/// The write.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most decisions write a value")]
pub(super) enum What {
    /// Nothing: the attempt already holds the lock, and its lease is not prolonged.
    Nothing,
    Value(Encoded, Holds),
    /// The grant with this token ends.
    Release(Token),
}

#[cfg(debug_assertions)]
impl Drop for Decision {
    /// Makes tests fail if the outcome was never committed.
    fn drop(&mut self) {
        assert!(
            self.is_committed || std::thread::panicking(),
            "a decision was neither committed nor marked as not written"
        );
    }
}

impl Decision {
    /// The write and the grant; `None` if the lock is refused.
    #[must_use]
    pub fn to_grant(decision: &Acquire<'_>) -> Option<(Self, Granted)> {
        let (record, succeeds, holds, events, counts): (_, _, _, &'static [Event], &'static [Counter]) = match decision
        {
            Acquire::Grant { record, succeeds: None, holds } => {
                (record, None, *holds, &[Event::Acquire], &[Counter::Grants])
            }
            Acquire::Grant { record, succeeds: Some(before), holds } => {
                let counts = &[Counter::Grants, Counter::Recoveries];
                let lets_others_join = matches!(holds, Holds::Among { replaces: None });
                let before = Before { lets_others_join, ..Before::of(*before) };
                (record, Some(before), *holds, &[Event::Lapse, Event::Acquire], counts)
            }
            Acquire::Prolong(record) => (record, None, Holds::AsBefore, &[Event::Extend], &[Counter::Extends]),
            Acquire::Keep(record) => {
                return Some((Self::new(What::Nothing, &[], &[]), Granted::of(record, None)));
            }
            Acquire::Refuse => return None,
        };
        Some((Self::new(What::Value(record.encode(), holds), events, counts), Granted::of(record, succeeds)))
    }

    /// The writes and the grant of several locks; `None` if one of them is refused.
    #[must_use]
    pub fn to_grants(decisions: &[Acquire<'_>]) -> Option<(Vec<Self>, Granted)> {
        let mut all: Option<Granted> = None;
        let mut each = Vec::with_capacity(decisions.len());
        for (lock, decision) in decisions.iter().enumerate() {
            let Some((decision, granted)) = Self::to_grant(decision) else {
                each.iter_mut().for_each(Self::not_written);
                return None;
            };
            each.push(decision);
            match &mut all {
                Some(all) => all.and(lock, granted),
                None => all = Some(granted),
            }
        }
        all.map(|all| (each, all))
    }

    /// Extends a lease.
    pub fn to_extend(record: &Record<'_>) -> Self {
        Self::new(What::Value(record.encode(), Holds::AsBefore), &[Event::Extend], &[Counter::Extends])
    }

    /// A decision by which an attempt claims its grant; `holds` is how it is stored.
    pub fn to_claim(record: &Record<'_>, holds: Holds) -> Self {
        Self::new(What::Value(record.encode(), holds), &[Event::Extend], &[])
    }

    /// Ends a grant.
    pub fn to_release(token: Token) -> Self {
        Self::new(What::Release(token), &[Event::Release], &[]).giving_back(token)
    }

    /// Ends a grant because its connection ended.
    pub fn to_end_session(record: &Record<'_>) -> Self {
        Self::new(What::Value(record.encode(), Holds::AsBefore), &[], &[Counter::SessionsEnded])
    }

    /// Restores an expired holder whose successor never found out about its own grant.
    pub fn to_restore(record: &Record<'_>, holds: Holds) -> Self {
        Self::new(What::Value(record.encode(), holds), &[], &[])
    }

    fn new(what: What, events: &'static [Event], counts: &'static [Counter]) -> Self {
        Self {
            what,
            gives_back: None,
            events,
            counts,
            #[cfg(debug_assertions)]
            is_committed: false,
        }
    }

    /// The same decision, published as a recovery.
    pub fn as_recovery(mut self) -> Self {
        if matches!(self.what, What::Value(..)) {
            self.events = &[Event::Lapse, Event::Recover];
        }
        self
    }

    /// The same decision, published as a hand-off of this grant.
    pub fn as_hand_off(mut self, token: Token) -> Self {
        self.events = &[Event::Release, Event::Acquire];
        self.giving_back(token)
    }

    /// The same decision, which also ends a grant.
    pub(super) fn giving_back(mut self, token: Token) -> Self {
        self.gives_back = Some(token);
        self
    }

    /// The write; `None` if the key does not change.
    #[must_use]
    pub fn write(&self) -> Option<Write<'_>> {
        match &self.what {
            What::Nothing => None,
            What::Value(value, holds) => Some(Write::Value(value, *holds)),
            What::Release(_) => Some(Write::Release),
        }
    }

    /// The events to publish once it is written.
    #[must_use]
    pub const fn events(&self) -> &'static [Event] {
        self.events
    }

    /// Called when the key could not be written: nothing changes.
    pub const fn not_written(&mut self) {
        self.set_committed();
    }

    /// Notes that the outcome was committed.
    #[inline]
    pub(super) const fn set_committed(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.is_committed = true;
        }
    }
}

/// A grant as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// The grant.
    pub token: Token,
    /// When it expires.
    pub until: UnixMicros,
    /// The predecessor in each lock that had expired, with the lock's index, in order of index.
    succeeds: Vec<(usize, Before)>,
}

impl Granted {
    fn of(record: &Record<'_>, succeeds: Option<Before>) -> Self {
        let succeeds = succeeds.map(|before| (0, before)).into_iter().collect();
        Self { token: record.token, until: record.timestamp, succeeds }
    }

    /// The predecessor in the lock with this index.
    #[must_use]
    pub fn before(&self, lock: usize) -> Option<&Before> {
        let at = self.succeeds.binary_search_by_key(&lock, |(at, _)| *at).ok()?;
        self.succeeds.get(at).map(|(_, before)| before)
    }

    /// The same grant, claimed until `until`.
    pub(super) fn claimed(self, until: UnixMicros) -> Self {
        Self { until, ..self }
    }

    /// Adds the remembered predecessor in the lock with this index.
    pub(super) fn recall(&mut self, lock: usize, before: Before) {
        let at = self.succeeds.partition_point(|(at, _)| *at < lock);
        self.succeeds.insert(at, (lock, before));
    }

    /// Adds one more lock under the same grant, with this index.
    fn and(&mut self, lock: usize, next: Self) {
        self.succeeds.extend(next.succeeds.into_iter().map(|(_, before)| (lock, before)));
    }
}

/// A grant's value without its token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Written {
    /// The timestamp.
    pub until: UnixMicros,
    /// The attempt.
    pub id: Option<Id>,
    /// The label.
    pub owner: Option<OwnerBuf>,
}

impl Written {
    /// The grant's whole record.
    #[must_use]
    pub fn record(&self, token: Token) -> Record<'_> {
        let owner = self.owner.as_ref().map(OwnerBuf::as_owner);
        Record { timestamp: self.until, token, id: self.id, owner }
    }
}

/// A predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Before {
    ended: UnixMicros,
    /// How long ago its lock expired, in milliseconds.
    pub overdue_ms: u64,
    /// Its token; a client of the classic pattern had none.
    pub token: Option<Token>,
    owner: Option<OwnerBuf>,
    /// Whether others can join the grant that succeeded it, in which case that grant's slot is not the predecessor's.
    lets_others_join: bool,
}

impl Before {
    /// An owned copy.
    #[must_use]
    pub fn of(predecessor: Predecessor<'_>) -> Self {
        Self {
            ended: predecessor.ended,
            overdue_ms: predecessor.overdue.as_ms(),
            token: predecessor.token,
            owner: predecessor.owner.map(Owner::to_boxed),
            lets_others_join: false,
        }
    }

    /// Its label.
    #[must_use]
    pub fn owner(&self) -> Option<Owner<'_>> {
        self.owner.as_ref().map(OwnerBuf::as_owner)
    }

    /// The expired lock, restored when the grant with `token`, which succeeded it, counts as never made. `token` stands
    /// in if the predecessor was a client of the classic pattern, which had none, or if others could join the grant: a
    /// late release by the predecessor must not reply that nobody has held the lock since.
    #[must_use]
    pub fn record(&self, token: Token) -> Record<'_> {
        let own = self.token.filter(|_| !self.lets_others_join);
        Record { timestamp: self.ended, token: own.unwrap_or(token), id: None, owner: self.owner() }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a decision was neither committed nor marked as not written")]
    fn a_decision_that_is_never_committed_ends_a_test() {
        drop(super::Decision::to_release(super::Token::LAST));
    }
}
