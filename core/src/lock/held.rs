//! What becomes of a grant that was given: its holder extends it, checks it, gives it back, goes away.

use super::error::Error;
use super::record::{Id, Record};
use super::request::Terms;
use super::state::State;
use super::time::{Micros, UnixMicros};
use super::token::Token;

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
        Some((record, true)) => Ok(Some(Record { timestamp: terms.timestamp(now, lease)?, ..record })),
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
        None => Release::Over,
    }
}

/// The connection of the holder of `token` ended at `ended`: the record to write, if the lock is to
/// end earlier by that.
#[must_use]
pub fn end_session(state: State<'_>, token: Token, terms: Terms, ended: UnixMicros) -> Option<Record<'_>> {
    let timestamp = ended.after(terms.margin);
    let (record, _) = state.granted_as(token)?;
    (timestamp < record.timestamp).then_some(Record { timestamp, ..record })
}

/// LOCK.CANCEL: the token that an attempt holds the lock with, if it does.
#[must_use]
pub fn held_by(state: State<'_>, id: Id) -> Option<Token> {
    match state {
        State::Held(_, Some(record)) if record.id == Some(id) => Some(record.token),
        State::Several(holders) => holders.held_by(id).map(|holder| holder.token),
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
