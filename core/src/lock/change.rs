//! Turns a write into commands. They are computed here; the caller, which has the key open, runs them.
//!
//! One holder is stored as a string, several as a sorted set. The set never vanishes during a change: holders are added
//! before others are removed.

use super::admit::Holds;
use super::holders::{Holder, Holders};
use super::record::Encoded;
use super::retention::Retention;
use super::time::UnixMicros;
use super::token::Token;

/// The holders in a sorted set, and the members whose grants have ended since it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The holders, expired ones included.
    pub holders: Holders,
    /// Members whose grants have ended, but which are still in the key.
    pub ended: Vec<Holder>,
}

impl Members {
    /// Ends a grant: it no longer counts as a holder. Returns whether it was one.
    pub fn end(&mut self, token: Token) -> bool {
        let ended = self.holders.remove(token);
        let was_one = ended.is_some();
        self.ended.extend(ended);
        was_one
    }
}

/// The contents of a key that a change depends on.
#[derive(Debug)]
pub enum Contents<'k> {
    Nothing,
    /// A string: one holder, or a foreign value.
    String,
    /// Several holders.
    Members {
        /// Updated to what the key holds after the change.
        members: &'k mut Members,
        /// Whether the key has a native expiry.
        has_expiry: bool,
    },
    /// One holder, a foreign value, or no key; it does not matter which, unless [`Write::needs_room`].
    One,
}

/// A write to a key.
#[derive(Clone, Copy, Debug)]
pub enum Write<'v> {
    /// Writes a value in the given form.
    Value(&'v Encoded, Holds),
    /// Removes the holders whose grants have ended; deletes the key if there was only one holder.
    Release,
}

impl Write<'_> {
    /// Whether it adds a holder to a set, for which a string in the key has to make room first.
    #[must_use]
    pub const fn needs_room(&self) -> bool {
        matches!(self, Self::Value(_, Holds::Among { .. }))
    }
}

/// How long expired locks and holders stay.
#[derive(Clone, Copy, Debug)]
pub struct Retentions {
    /// For a key, through its native expiry.
    pub key: Retention,
    /// For one of several holders, whether or not their key has a native expiry.
    pub holder: Retention,
}

/// A server command on one key.
#[derive(Debug)]
pub enum Primitive<'a> {
    /// `SET key value [PXAT ms]`
    Set {
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

/// The changes that a write makes to a key.
#[derive(Debug)]
pub enum Change<'v> {
    /// Writes one holder over whatever was there.
    Set {
        value: &'v Encoded,
        /// The native expiry in Unix milliseconds, if there is one.
        expire_at_ms: Option<u64>,
    },
    /// Deletes the key.
    Del,
    /// Changes a sorted set.
    Several(Several<'v>),
}

/// The changes to a sorted set of holders.
#[derive(Debug)]
pub struct Several<'v> {
    added: Option<&'v Encoded>,
    gone: Vec<Holder>,
    expiry: Expiry,
    /// Whether the set replaces a string.
    replaces_string: bool,
    /// The holders in the key afterwards, if it held no set before.
    pub made: Option<Members>,
}

/// What happens to the native expiry of a sorted set.
#[derive(Clone, Copy, Debug)]
enum Expiry {
    Stays,
    At(u64),
    Ends,
}

/// The largest number of expired holders past their retention that one write removes.
const MOST_FORGOTTEN: usize = 8;

impl<'v> Change<'v> {
    /// The change that `write` makes at `now` to a key that holds `contents`. Deleting a key does not need the
    /// retentions.
    #[must_use]
    #[inline]
    pub fn of(
        write: Write<'v>,
        contents: Contents<'_>,
        retentions: impl FnOnce() -> Retentions,
        now: UnixMicros,
    ) -> Self {
        match (write, contents) {
            (Write::Value(value, holds), Contents::Members { members, has_expiry }) if holds != Holds::Alone => {
                let change = Several::of(Some(value), holds.replaces(), members, has_expiry, &retentions(), now);
                Self::Several(change)
            }
            (Write::Value(value, holds @ Holds::Among { .. }), contents) => {
                let mut members = Members::default();
                let change = Several::of(Some(value), holds.replaces(), &mut members, false, &retentions(), now);
                Self::Several(Several {
                    replaces_string: matches!(contents, Contents::String),
                    made: Some(members),
                    ..change
                })
            }
            (Write::Value(value, _), _) => {
                Self::Set { value, expire_at_ms: retentions().key.expire_at_ms(value.timestamp()) }
            }
            (Write::Release, Contents::Members { members, has_expiry }) => {
                Self::Several(Several::of(None, None, members, has_expiry, &retentions(), now))
            }
            (Write::Release, _) => Self::Del,
        }
    }

    /// Calls `each` with the commands, in order, until one fails.
    ///
    /// # Errors
    /// The first error that `each` returns.
    #[inline]
    pub fn try_each<E>(&self, mut each: impl FnMut(Primitive<'_>) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Set { value, expire_at_ms } => each(Primitive::Set { value, expire_at_ms: *expire_at_ms }),
            Self::Del => each(Primitive::Del),
            Self::Several(Several { added, gone, expiry, replaces_string, .. }) => {
                if *replaces_string {
                    each(Primitive::Del)?;
                }
                added.map_or(Ok(()), |value| each(Primitive::Zadd(value)))?;
                gone.iter().try_for_each(|holder| each(Primitive::Zrem(holder)))?;
                match *expiry {
                    Expiry::Stays => Ok(()),
                    Expiry::At(ms) => each(Primitive::PexpireAt(ms)),
                    Expiry::Ends => each(Primitive::Persist),
                }
            }
        }
    }
}

impl<'v> Several<'v> {
    /// Adds a value. Removes the holders that have ended, the holder it replaces and some whose retention has ended.
    /// Sets the native expiry to that of the last holder to expire.
    fn of(
        added: Option<&'v Encoded>,
        replaces: Option<Token>,
        members: &mut Members,
        has_expiry: bool,
        retentions: &Retentions,
        now: UnixMicros,
    ) -> Self {
        let Members { holders, ended } = members;
        let expires_with_last = |holders: &Holders| retentions.key.expire_at_ms(holders.last_end()?);
        let mut gone = std::mem::take(ended);
        let of_gone = gone.iter().filter_map(|ended| retentions.key.expire_at_ms(ended.timestamp)).max();
        let known = of_gone.into_iter().chain(expires_with_last(holders)).max().filter(|_| has_expiry);
        gone.extend(replaces.and_then(|token| holders.remove(token)));
        if let Some(record) = added.and_then(Encoded::record) {
            holders.advance(now);
            holders.put(Holder::of(&record));
            // A restored predecessor that has the grant's token is the same member with a different score.
            gone.retain(|ended| {
                ended.token != record.token || ended.record().encode().member() != record.encode().member()
            });
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
        Self { added, gone, expiry, replaces_string: false, made: None }
    }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
