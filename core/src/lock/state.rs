//! A lock's state at one point in time, read from its key.

use super::holders::{Holder, Holders};
use super::record::{Record, Value};
use super::request::Share;
use super::time::UnixMicros;
use super::token::Token;

/// A lock's state, the same for everybody except the owner of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// The key does not exist.
    Free,
    /// The timestamp has not passed; `None`: a client of the classic pattern wrote it.
    Held(UnixMicros, Option<Record<'a>>),
    /// The timestamp has passed.
    Expired(UnixMicros, Option<Record<'a>>),
    /// The value is not a timestamp.
    Foreign,
    /// Several holders, each with its own timestamp.
    Several(&'a Holders),
}

impl<'a> State<'a> {
    /// The state of a key at `now`; `value` is `None` when it does not exist.
    #[must_use]
    pub fn of(value: Option<Value<'a>>, now: UnixMicros) -> Self {
        let (timestamp, record) = match value {
            None => return Self::Free,
            Some(Value::Foreign) => return Self::Foreign,
            Some(Value::Ours(record)) => (record.timestamp, Some(record)),
            Some(Value::Classic(timestamp)) => (timestamp, None),
        };
        if timestamp <= now {
            Self::Expired(timestamp, record)
        } else {
            Self::Held(timestamp, record)
        }
    }

    /// Its name in LOCK.INFO.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Foreign => "foreign",
            Self::Held(..) => "held",
            Self::Several(holders) if holders.live() > 0 => "held",
            Self::Expired(..) | Self::Several(_) => "expired",
        }
    }

    /// Whether nobody holds the lock.
    #[must_use]
    pub fn is_nobodys(&self) -> bool {
        match self {
            Self::Free | Self::Expired(..) => true,
            Self::Held(..) | Self::Foreign => false,
            Self::Several(holders) => holders.live() == 0,
        }
    }

    /// Whether the lock has expired: its holder never released it, and nobody holds it now.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        match self {
            Self::Expired(..) => true,
            Self::Several(holders) => holders.live() == 0 && !holders.is_empty(),
            _ => false,
        }
    }

    /// The record of the last holder to expire, if this module wrote it.
    #[must_use]
    pub fn last_to_end(&self) -> Option<Record<'a>> {
        match *self {
            Self::Held(_, record) | Self::Expired(_, record) => record,
            Self::Several(holders) => holders.last_to_end().map(Holder::record),
            Self::Free | Self::Foreign => None,
        }
    }

    /// When the last holder to expire was granted the lock: a token is the time of its grant. `None` if nobody holds
    /// the lock, or another kind of client does.
    #[must_use]
    pub fn held_since(&self) -> Option<UnixMicros> {
        let record = self.last_to_end().filter(|_| !self.is_nobodys())?;
        Some(UnixMicros(record.token.get()))
    }

    /// When a caller could have the lock if nobody releases or extends; `None` if that is now or unknown.
    #[must_use]
    pub fn free_at(&self, share: Share) -> Option<UnixMicros> {
        match self {
            Self::Held(until, _) => Some(*until),
            Self::Several(holders) => holders.fewer_than(share.most()),
            Self::Free | Self::Expired(..) | Self::Foreign => None,
        }
    }

    /// When the last holder expires if nobody releases or extends; `None` if unknown.
    #[must_use]
    pub fn last_end(&self) -> Option<UnixMicros> {
        match self {
            Self::Held(until, _) | Self::Expired(until, _) => Some(*until),
            Self::Several(holders) => holders.last_end(),
            Self::Free | Self::Foreign => None,
        }
    }

    /// The record of the grant with this token, if it is still in the key, and whether it still holds the lock.
    pub(super) fn granted_as(&self, token: Token) -> Option<(Record<'a>, bool)> {
        match *self {
            Self::Held(_, Some(record)) if record.token == token => Some((record, true)),
            Self::Expired(_, Some(record)) if record.token == token => Some((record, false)),
            Self::Several(holders) => holders.get(token).map(|holder| (holder.record(), !holders.is_over(holder))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(ends: &[u64], now: u64) -> Holders {
        let token = |number: usize| Token::new(number as u64).unwrap();
        let holder = |(number, end): (usize, &u64)| Holder {
            timestamp: UnixMicros(*end),
            token: token(number),
            id: None,
            owner: None,
        };
        let mut holders: Holders = ends.iter().enumerate().map(holder).collect();
        holders.advance(UnixMicros(now));
        holders
    }

    #[test]
    fn a_lock_with_several_holders_has_the_state_of_its_last() {
        // The holders' ends, and the expected state at time 10: name, is nobody's, is expired, the last grant to end,
        // its end.
        for (ends, expected) in [
            (&[20, 5][..], ("held", false, false, Some(0), Some(20))),
            (&[9, 10], ("expired", true, true, Some(1), Some(10))),
            (&[], ("expired", true, false, None, None)),
        ] {
            let holders = holders(ends, 10);
            let state = State::Several(&holders);
            let last = state.last_to_end().map(|record| record.token.get());
            let found = (state.name(), state.is_nobodys(), state.is_expired(), last, state.last_end().map(|end| end.0));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_value_of_a_lock_with_one_holder_shows_its_end() {
        let (end, now) = (UnixMicros(20), UnixMicros(10));
        let record = Record { timestamp: end, token: Token::new(7).unwrap(), id: None, owner: None };
        for (state, free_at, last_end, last) in [
            (State::Free, None, None, None),
            (State::Foreign, None, None, None),
            (State::of(Some(Value::Ours(record)), now), Some(end), Some(end), Some(record)),
            (State::of(Some(Value::Classic(end)), now), Some(end), Some(end), None),
            (State::of(Some(Value::Ours(record)), end), None, Some(end), Some(record)),
        ] {
            assert_eq!((state.free_at(Share::Alone), state.last_end(), state.last_to_end()), (free_at, last_end, last));
        }
    }
}
