//! A key on the fake server, as of when it was opened.

use super::{Content, OwnedKeyName, Stored};
use redis_lock_core::driver::{Key, Unseen};
use redis_lock_core::engine::Shape;
use redis_lock_core::lock::change::Members;
use redis_lock_core::lock::holders::{Holder, Holders};
use redis_lock_core::lock::record::{timestamp_of, Record, Value};
use redis_lock_core::lock::state::State;
use redis_lock_core::lock::time::UnixMicros;
use std::cell::Cell;
use std::rc::Rc;

/// A key as of when it was opened.
pub struct FakeKey {
    pub(super) place: OwnedKeyName,
    pub(super) stored: Option<Stored>,
    members: Option<Members>,
    now: UnixMicros,
    /// The time at which its lock is judged: the same time, unless the server is a mutant.
    judged_at: UnixMicros,
    pub(super) looks_free: bool,
    is_closed: bool,
    is_open: Option<Open>,
}

/// One of the keys that are open.
struct Open(Rc<Cell<usize>>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl FakeKey {
    /// Counts it as one of the open keys until it is closed.
    pub(super) fn opened(&mut self, open_keys: &Rc<Cell<usize>>) {
        open_keys.set(open_keys.get() + 1);
        self.is_open = Some(Open(Rc::clone(open_keys)));
    }

    pub(super) fn read(
        place: OwnedKeyName,
        stored: Option<Stored>,
        now: UnixMicros,
        judged_at: UnixMicros,
    ) -> Result<Self, Unseen> {
        let members = match stored.as_ref().map(|stored| &stored.content) {
            Some(Content::Set(set)) => {
                let mut holders = Holders::new();
                for (member, score) in set {
                    // The score is a double, as in a real server.
                    let score = UnixMicros(*score).as_seconds();
                    let record = Record::read_member(score, member).ok_or(Unseen::WrongType)?;
                    assert_eq!(timestamp_of(score), Some(record.timestamp));
                    holders.put(Holder::of(&record));
                }
                holders.advance(judged_at);
                Some(Members { holders, ended: Vec::new() })
            }
            _ => None,
        };
        Ok(Self { place, stored, members, now, judged_at, looks_free: false, is_closed: false, is_open: None })
    }
}

impl Key for FakeKey {
    fn lock(&self) -> State<'_> {
        assert!(!self.is_closed, "a closed key is read");
        match (&self.members, &self.stored) {
            _ if self.looks_free => State::Free,
            (Some(members), _) => State::Several(&members.holders),
            (None, Some(Stored { content: Content::String(bytes), expire_at_ms })) => {
                State::of(Some(Value::read(bytes, || expire_at_ms.is_some())), self.judged_at)
            }
            _ => State::Free,
        }
    }

    fn now(&self) -> UnixMicros {
        self.now
    }

    fn expires_in_ms(&self) -> Option<u64> {
        let at = self.stored.as_ref()?.expire_at_ms?;
        Some(at.saturating_sub(self.now.0 / 1_000))
    }

    fn holders_read(&self) -> usize {
        self.members.as_ref().map_or(0, |members| members.holders.len())
    }

    fn shape(&self) -> Shape {
        if self.members.is_some() {
            Shape::Several
        } else {
            Shape::One
        }
    }

    fn is_string(&self) -> bool {
        matches!(self.stored, Some(Stored { content: Content::String(_), .. }))
    }

    fn has_expiry(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.expire_at_ms.is_some())
    }

    fn members(&mut self) -> Option<&mut Members> {
        self.members.as_mut()
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.is_open = None;
    }
}
