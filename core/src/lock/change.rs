//! What a write changes in a key: the server's commands that come to the same, computed here and carried out by whoever
//! has the key.
//!
//! One holder is a string, several are a sorted set. A set never vanishes in between: a holder is added before others
//! are removed.

use super::holders::{Holder, Holders};
use super::record::Encoded;
use super::retention::Retention;
use super::rules::Holds;
use super::time::UnixMicros;
use super::token::Token;

/// The holders in a sorted set, and those among them whose grants have ended since it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Who holds the lock, or held it and has expired.
    pub holders: Holders,
    /// Whose grants have ended: they are still in the key.
    pub ended: Vec<Holder>,
}

impl Members {
    /// A grant ends: it is no longer among the holders. Whether it was.
    pub fn end(&mut self, token: Token) -> bool {
        let ended = self.holders.remove(token);
        let was_one = ended.is_some();
        self.ended.extend(ended);
        was_one
    }
}

/// What a key holds, as far as a change depends on it.
#[derive(Debug)]
pub enum Contents<'k> {
    /// It does not exist.
    Nothing,
    /// A string: one holder, or a foreign value.
    String,
    /// Several holders.
    Members {
        /// They are brought to what the key holds after the change.
        members: &'k mut Members,
        /// The key has a native expiry.
        has_expiry: bool,
    },
}

/// What is to be written.
#[derive(Clone, Copy, Debug)]
pub enum Write<'v> {
    /// A value, which stands in the key like that.
    Value(&'v Encoded, Holds),
    /// Holders whose grants have ended are taken out; of one holder, the key.
    Release,
}

/// How long what has expired stays.
#[derive(Clone, Copy, Debug)]
pub struct Retentions {
    /// A key, by its native expiry.
    pub key: Retention,
    /// A holder among others, whether their key has a native expiry or not.
    pub holder: Retention,
}

/// A command of the server, on one key.
#[derive(Debug)]
pub enum Primitive<'a> {
    /// `SET key value [PXAT ms]`
    Set {
        /// The value.
        value: &'a Encoded,
        /// The native expiry in Unix milliseconds, if there is one.
        expire_at_ms: Option<u64>,
    },
    /// `DEL key`
    Del,
    /// `ZADD key score member`
    Zadd(&'a Encoded),
    /// `ZREM key member`
    Zrem(&'a Holder),
    /// `PEXPIREAT key ms`
    PexpireAt(u64),
    /// `PERSIST key`
    Persist,
}

/// What a write changes in a key.
#[derive(Debug)]
pub struct Change<'v> {
    first: First<'v>,
    gone: Vec<Holder>,
    expiry: Expiry,
    /// The holders that the key has afterwards, if it had none before.
    pub made: Option<Members>,
}

#[derive(Clone, Copy, Debug)]
enum First<'v> {
    Nothing,
    Set { value: &'v Encoded, expire_at_ms: Option<u64> },
    Del,
    Zadd { value: &'v Encoded, replaces_string: bool },
}

/// What becomes of the native expiry of a sorted set.
#[derive(Clone, Copy, Debug)]
enum Expiry {
    Stays,
    At(u64),
    Ends,
}

/// How many expired holders a write takes out whose retention is over.
const MOST_FORGOTTEN: usize = 8;

impl<'v> Change<'v> {
    /// What `write` changes in a key that holds `contents` at `now`.
    #[must_use]
    pub fn of(write: Write<'v>, contents: Contents<'_>, retentions: &Retentions, now: UnixMicros) -> Self {
        match (write, contents) {
            (Write::Value(value, holds), Contents::Members { members, has_expiry }) if holds != Holds::Alone => {
                let first = First::Zadd { value, replaces_string: false };
                Self::in_set(first, Some(value), holds.replaces(), members, has_expiry, retentions, now)
            }
            (Write::Value(value, holds @ Holds::Among { .. }), contents) => {
                let first = First::Zadd { value, replaces_string: matches!(contents, Contents::String) };
                let mut members = Members::default();
                let change = Self::in_set(first, Some(value), holds.replaces(), &mut members, false, retentions, now);
                Self { made: Some(members), ..change }
            }
            (Write::Value(value, _), _) => {
                let expire_at_ms = retentions.key.expire_at_ms(value.timestamp());
                Self { first: First::Set { value, expire_at_ms }, ..Self::NOTHING }
            }
            (Write::Release, Contents::Members { members, has_expiry }) => {
                Self::in_set(First::Nothing, None, None, members, has_expiry, retentions, now)
            }
            (Write::Release, _) => Self { first: First::Del, ..Self::NOTHING },
        }
    }

    const NOTHING: Self = Self { first: First::Nothing, gone: Vec::new(), expiry: Expiry::Stays, made: None };

    /// A value is put in; those who have ended, the one that it replaces and some whose retention is over are taken out;
    /// the native expiry becomes that of the last to end.
    fn in_set(
        first: First<'v>,
        value: Option<&Encoded>,
        replaces: Option<Token>,
        members: &mut Members,
        has_expiry: bool,
        retentions: &Retentions,
        now: UnixMicros,
    ) -> Self {
        let Members { holders, ended } = members;
        let expires_with_last = |holders: &Holders| {
            let (first, last) = holders.ends()?;
            let end = if crate::broken::is(crate::broken::Mutant::ExpiresWithFirst) { first } else { last };
            retentions.key.expire_at_ms(end)
        };
        let mut gone = std::mem::take(ended);
        let of_gone = gone.iter().filter_map(|ended| retentions.key.expire_at_ms(ended.timestamp)).max();
        let known = of_gone.into_iter().chain(expires_with_last(holders)).max().filter(|_| has_expiry);
        gone.extend(replaces.and_then(|token| holders.remove(token)));
        if let Some(record) = value.and_then(Encoded::record) {
            holders.look(now);
            holders.put(Holder::of(&record));
        }
        for _ in 0..MOST_FORGOTTEN {
            let forgotten = holders.to_forget(retentions.holder, now).map(|holder| holder.token);
            let Some(forgotten) = forgotten else { break };
            gone.extend(holders.remove(forgotten));
        }
        let expiry = match expires_with_last(holders) {
            _ if holders.is_empty() => Expiry::Stays,
            Some(ms) if known != Some(ms) => Expiry::At(ms),
            None if has_expiry => Expiry::Ends,
            _ => Expiry::Stays,
        };
        Self { first, gone, expiry, made: None }
    }

    /// The commands, in order.
    pub fn primitives(&self) -> impl Iterator<Item = Primitive<'_>> {
        let (before, first) = match self.first {
            First::Nothing => (None, None),
            First::Set { value, expire_at_ms } => (None, Some(Primitive::Set { value, expire_at_ms })),
            First::Del => (None, Some(Primitive::Del)),
            First::Zadd { value, replaces_string } => {
                (replaces_string.then_some(Primitive::Del), Some(Primitive::Zadd(value)))
            }
        };
        let expiry = match self.expiry {
            Expiry::Stays => None,
            Expiry::At(ms) => Some(Primitive::PexpireAt(ms)),
            Expiry::Ends => Some(Primitive::Persist),
        };
        before.into_iter().chain(first).chain(self.gone.iter().map(Primitive::Zrem)).chain(expiry)
    }
}
