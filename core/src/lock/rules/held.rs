//! What becomes of a grant that was given: its holder extends it, checks it, gives it back, goes away; and how long it
//! stays in its key when it is over.

use super::{timestamp, State, Terms};
use crate::broken::{self, Mutant};
use crate::lock::error::Error;
use crate::lock::record::{Id, Record};
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// LOCK.EXTEND: the record to write, if that grant is still held.
///
/// # Errors
/// [`Error::Clock`].
pub fn extend(
    state: State<'_>,
    token: Token,
    lease: Micros,
    terms: Terms,
    now: UnixMicros,
) -> Result<Option<Record<'_>>, Error> {
    match state.granted_as(token) {
        _ if broken::is(Mutant::ExtendAny) => match state {
            State::Held(_, Some(record)) => Ok(Some(Record { timestamp: timestamp(now, lease, terms)?, ..record })),
            _ => Ok(None),
        },
        Some((record, true)) => Ok(Some(Record { timestamp: timestamp(now, lease, terms)?, ..record })),
        _ => Ok(None),
    }
}

/// LOCK.MEXTEND: the records to write, if all of several locks are still held by that grant.
///
/// # Errors
/// [`Error::Clock`].
pub fn extend_all<'a>(
    states: &[State<'a>],
    token: Token,
    lease: Micros,
    terms: Terms,
    now: UnixMicros,
) -> Result<Option<Vec<Record<'a>>>, Error> {
    states.iter().map(|state| extend(*state, token, lease, terms, now)).collect()
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The holder gave it back in time: it is free now.
    InTime,
    /// Its timestamp had passed, but nobody had taken it: it is free now.
    Late,
    /// That grant was over; nothing changes.
    Over,
}

/// LOCK.RELEASE.
#[must_use]
pub fn release(state: State<'_>, token: Token) -> Release {
    match state.granted_as(token) {
        Some((_, true)) => Release::InTime,
        Some((_, false)) => Release::Late,
        None if broken::is(Mutant::ReleaseAny) && matches!(state, State::Held(_, Some(_))) => Release::InTime,
        None => Release::Over,
    }
}

/// The connection of the holder of `token` ended at `ended`: the record to write, if the lock is to
/// end earlier by that.
#[must_use]
pub fn end_session(state: State<'_>, token: Token, terms: Terms, ended: UnixMicros) -> Option<Record<'_>> {
    let timestamp = ended.after(terms.margin);
    let token = match state {
        State::Several(holders) if broken::is(Mutant::EndsOther) => {
            holders.iter().map(|holder| holder.token).find(|other| *other != token).unwrap_or(token)
        }
        _ => token,
    };
    let (record, _) = state.granted_as(token)?;
    (timestamp < record.timestamp).then_some(Record { timestamp, ..record })
}

/// LOCK.CANCEL: the token that an attempt holds the lock with, if it does.
#[must_use]
pub fn held_by(state: State<'_>, id: Id) -> Option<Token> {
    match state {
        State::Held(_, Some(record)) if record.id == Some(id) => Some(record.token),
        State::Several(holders) => {
            holders.by_id(id).filter(|holder| !holders.is_over(holder)).map(|holder| holder.token)
        }
        _ => None,
    }
}

/// LOCK.CHECK: the lease left to the holder of that token, without the margin; none if it is over.
#[must_use]
pub fn check(state: State<'_>, token: Token, terms: Terms, now: UnixMicros) -> Micros {
    match state.granted_as(token) {
        Some((record, true)) => lease_left(&record, terms, now),
        _ => Micros(0),
    }
}

/// What is left of the lease: until the margin before the timestamp.
#[must_use]
pub fn lease_left(record: &Record<'_>, terms: Terms, now: UnixMicros) -> Micros {
    record.timestamp.before(terms.margin).since(now)
}

/// How long an expired holder stays among others where locks stay for ever.
const HOLDER_STAYS_MS: u64 = 60_000;

/// How long an expired lock stays in its key for recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// For ever: the key has no native expiry.
    Forever,
    /// For so many milliseconds after its timestamp.
    Ms(u64),
}

impl Retention {
    /// The native expiry of a key with that timestamp: Unix time in ms, rounded up.
    #[must_use]
    pub const fn expire_at_ms(self, timestamp: UnixMicros) -> Option<u64> {
        match self {
            Self::Forever => None,
            Self::Ms(ms) => Some(timestamp.as_ms_ceil().saturating_add(ms)),
        }
    }

    /// How long an expired holder stays among others, whatever the native expiry of their key: Unix time in ms. For
    /// ever would be without bound, since each grant can add one.
    #[must_use]
    pub const fn holder_stays_until_ms(self, timestamp: UnixMicros) -> u64 {
        let ms = match self {
            Self::Forever => HOLDER_STAYS_MS,
            Self::Ms(ms) => ms,
        };
        timestamp.as_ms_ceil().saturating_add(ms)
    }
}
