//! The life of a grant: extend, check, release, and the end of its connection.
//!
//! ```
//! use redis_lock_core::lock::record::{Record, Value};
//! use redis_lock_core::lock::terms::Terms;
//! use redis_lock_core::lock::held::{check, extend, release, release_from, Release};
//! use redis_lock_core::lock::state::State;
//! use redis_lock_core::lock::time::{Micros, UnixMicros};
//! use redis_lock_core::lock::token::Token;
//!
//! let terms = Terms { margin: Micros::from_ms(1_000) };
//! let start = UnixMicros(1_763_710_000_000_000);
//! let token = Token::new(42).ok_or("too large")?;
//! // A lease of 30 s and the margin.
//! let held = Record { timestamp: start.after(Micros::from_ms(31_000)), token, id: None, owner: None };
//! let state = |now| State::of(Some(Value::Ours(held)), now);
//!
//! let now = start.after(Micros::from_ms(10_000));
//! assert_eq!(check(state(now), token, terms, now), Micros::from_ms(20_000));
//! let extended = extend(state(now), token, Micros::from_ms(30_000), terms, now)?.ok_or("the grant has ended")?;
//! assert_eq!(extended.timestamp, now.after(Micros::from_ms(31_000)));
//! assert_eq!(release(state(now), token), Release::InTime);
//!
//! // Within the margin, the lease has expired: an overrun.
//! let overrun = start.after(Micros::from_ms(30_000));
//! assert_eq!(release_from(state(overrun), token, terms, overrun), (Release::InTime, true));
//!
//! // Expired, but nobody has taken it over.
//! let late = start.after(Micros::from_ms(40_000));
//! assert_eq!(extend(state(late), token, Micros::from_ms(30_000), terms, late)?, None);
//! assert_eq!(release(state(late), token), Release::Late);
//!
//! // Another grant's token changes nothing.
//! assert_eq!(release(state(now), Token::FIRST), Release::Over);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::error::Error;
use super::record::{Id, Record};
use super::request::Request;
use super::state::State;
use super::terms::Terms;
use super::time::{Micros, UnixMicros};
use super::token::Token;

/// LOCK.EXTEND: the record to write, if the grant still holds the lock.
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
    extend_from(state, token, lease, terms, now).map(|extended| extended.map(|extended| extended.record))
}

/// A new lease for a grant.
#[derive(Clone, Copy, Debug)]
pub struct Extended<'a> {
    /// The record to write.
    pub record: Record<'a>,
    /// Whether the old lease had expired: only the margin was left.
    pub is_overrun: bool,
}

/// Like [`extend`], and whether the holder had overrun its lease.
///
/// # Errors
/// [`Error::Clock`].
pub fn extend_from(
    state: State<'_>,
    token: Token,
    lease: Micros,
    terms: Terms,
    now: UnixMicros,
) -> Result<Option<Extended<'_>>, Error> {
    match state.granted_as(token) {
        Some((record, true)) => {
            let is_overrun = has_overrun(&record, terms, now);
            let record = Record { timestamp: terms.timestamp(now, lease)?, ..record };
            Ok(Some(Extended { record, is_overrun }))
        }
        _ => Ok(None),
    }
}

/// Whether a live grant's lease has expired: only the margin is left.
fn has_overrun(record: &Record<'_>, terms: Terms, now: UnixMicros) -> bool {
    record.timestamp.before(terms.margin) <= now
}

/// Whether a grant's whole value is still the one written.
#[must_use]
pub fn is_unchanged(state: State<'_>, written: &Record<'_>) -> bool {
    state.granted_as(written.token).is_some_and(|(record, _)| record == *written)
}

/// The record to write when an attempt claims the grant that was written for it, unnamed and ending at `until`; `None`
/// if the grant has changed since.
///
/// # Errors
/// [`Error::Clock`].
pub fn claim<'a>(
    state: State<'_>,
    token: Token,
    until: UnixMicros,
    request: &Request<'a>,
    terms: Terms,
    now: UnixMicros,
) -> Result<Option<Record<'a>>, Error> {
    if !is_unchanged(state, &Record { timestamp: until, token, id: None, owner: None }) {
        return Ok(None);
    }
    let timestamp = terms.timestamp(now, request.lease)?;
    Ok(Some(Record { timestamp, token, id: request.id, owner: request.owner }))
}

/// LOCK.MEXTEND: the records to write, if the grant still holds all of the locks.
///
/// # Errors
/// [`Error::Clock`].
pub fn extend_all<'a>(
    states: &[State<'a>],
    token: Token,
    lease: Micros,
    terms: Terms,
    now: UnixMicros,
) -> Result<Option<Vec<Extended<'a>>>, Error> {
    states.iter().map(|state| extend_from(*state, token, lease, terms, now)).collect()
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The holder released the lock in time: the lock is free now.
    InTime,
    /// The lock had expired, but nobody had taken it: the lock is free now.
    Late,
    /// The grant had ended; nothing changes.
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

/// Like [`release`], and whether the holder had overrun its lease, that is, released the lock within the margin.
#[must_use]
pub fn release_from(state: State<'_>, token: Token, terms: Terms, now: UnixMicros) -> (Release, bool) {
    match state.granted_as(token) {
        Some((record, true)) => (Release::InTime, has_overrun(&record, terms, now)),
        Some((_, false)) => (Release::Late, false),
        None => (Release::Over, false),
    }
}

/// Called when the connection of `token`'s holder ended at `ended`. Returns the record to write, if the lock now ends
/// earlier.
#[must_use]
pub fn end_session(state: State<'_>, token: Token, terms: Terms, ended: UnixMicros) -> Option<Record<'_>> {
    let timestamp = ended.after(terms.margin);
    let (record, _) = state.granted_as(token)?;
    (timestamp < record.timestamp).then_some(Record { timestamp, ..record })
}

/// LOCK.CANCEL: the token with which an attempt holds the lock, if it does.
#[must_use]
pub fn held_by(state: State<'_>, id: Id) -> Option<Token> {
    match state {
        State::Held(_, Some(record)) if record.id == Some(id) => Some(record.token),
        State::Several(holders) => holders.held_by(id).map(|holder| holder.token),
        _ => None,
    }
}

/// LOCK.CHECK: the time left on the token holder's lease, without the margin; zero if the grant has ended.
#[must_use]
pub fn check(state: State<'_>, token: Token, terms: Terms, now: UnixMicros) -> Micros {
    match state.granted_as(token) {
        Some((record, true)) => lease_left(&record, terms, now),
        _ => Micros(0),
    }
}

/// The lease that is left: the time until one margin before the timestamp.
#[must_use]
pub fn lease_left(record: &Record<'_>, terms: Terms, now: UnixMicros) -> Micros {
    record.timestamp.before(terms.margin).since(now)
}
