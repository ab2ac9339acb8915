//! Who may have the lock: `(what the key holds, request, now) -> decision`.
//!
//! One rule decides for one holder and for several: a caller is admitted when fewer live than it
//! bears, and no plain holder is there. For several keys it is asked of each: all or nothing.
//!
//! The classic sequence in one step: a free key is taken (SETNX), a held one refused (GET), an
//! expired one taken over in place (GETSET), never deleted and re-created. A foreign value is held
//! for as long as it exists.

use super::error::Error;
use super::record::{Owner, Record};
use super::request::{Request, Share, Terms};
use super::state::State;
use super::time::{Micros, UnixMicros};
use super::token::{Token, Tokens};

/// Who had an expired lock before its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predecessor<'a> {
    /// Its timestamp.
    pub ended: UnixMicros,
    /// How long ago its timestamp passed.
    pub overdue: Micros,
    /// Its token, if it was granted by this module.
    pub token: Option<Token>,
    /// Its label.
    pub owner: Option<Owner<'a>>,
}

/// How a grant stands in its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// As it stood before.
    AsBefore,
    /// By itself: a string.
    Alone,
    /// Among several: in a sorted set, in the place of that overdue holder if there is one.
    Among {
        /// Its grant.
        replaces: Option<Token>,
    },
}

impl Holds {
    /// Whether it is among several, in a key where `several` hold it or not.
    #[must_use]
    pub const fn is_among(self, several: bool) -> bool {
        match self {
            Self::AsBefore => several,
            Self::Alone => false,
            Self::Among { .. } => true,
        }
    }

    /// The overdue holder whose place it takes.
    #[must_use]
    pub const fn replaces(self) -> Option<Token> {
        match self {
            Self::Among { replaces } => replaces,
            Self::AsBefore | Self::Alone => None,
        }
    }
}

/// Whether a caller may have a lock that is free for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may.
    Now,
    /// Others came first: the lock is theirs.
    Behind,
    /// Nobody is granted a lock now.
    Barred,
}

/// Whether a caller may have the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<'a> {
    /// It may.
    Granted {
        /// The largest token in the key.
        in_key: Option<Token>,
        /// Whom it succeeds.
        succeeds: Option<Predecessor<'a>>,
        /// How its grant is to stand in the key.
        holds: Holds,
    },
    /// The attempt has it already.
    Already(Record<'a>),
    /// The attempt has it already, but asked for it in another way: alone, or among several.
    AskedOtherwise,
    /// Others have it.
    Refused,
}

/// What becomes of a request for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire<'a> {
    /// It is the caller's: write this.
    Grant {
        /// The new value.
        record: Record<'a>,
        /// Whom it succeeds, if the lock had expired.
        succeeds: Option<Predecessor<'a>>,
        /// How it stands in the key.
        holds: Holds,
    },
    /// The attempt holds it already, and the lease now ends later: write this.
    Prolong(Record<'a>),
    /// The attempt holds it already, for at least as long: this stays.
    Keep(Record<'a>),
    /// Somebody else has it.
    Refuse,
}

/// The rule: a caller is admitted when fewer live than it bears. While others wait ahead of it, a
/// lock that it could have is theirs.
#[must_use]
pub fn admit<'a>(state: State<'a>, request: &Request<'_>, turn: Turn, now: UnixMicros) -> Admission<'a> {
    let alone = request.share == Share::Alone;
    let (in_key, succeeds, replaces) = match state {
        State::Free => (None, None, None),
        State::Expired(ended, record) => {
            let token = record.map(|record| record.token);
            (token, Some(predecessor(ended, record, now)), None)
        }
        State::Held(_, Some(held)) if held.id.is_some() && held.id == request.id => {
            return if alone { Admission::Already(held) } else { Admission::AskedOtherwise };
        }
        State::Held(..) | State::Foreign => return Admission::Refused,
        State::Several(holders) => {
            if let Some(own) = request.id.and_then(|id| holders.held_by(id)) {
                return if alone { Admission::AskedOtherwise } else { Admission::Already(own.record()) };
            }
            let fits = |count: usize| u64::try_from(count).unwrap_or(u64::MAX) < request.share.most();
            if !fits(holders.live()) {
                return Admission::Refused;
            }
            // A caller that needs a slot replaces the holder that expired first.
            let before = holders.longest_overdue().filter(|_| !fits(holders.len()));
            let succeeds = before.map(|before| predecessor(before.timestamp, Some(before.record()), now));
            (holders.latest(), succeeds, before.map(|before| before.token))
        }
    };
    if turn != Turn::Now {
        return Admission::Refused;
    }
    let holds = if alone { Holds::Alone } else { Holds::Among { replaces } };
    Admission::Granted { in_key, succeeds, holds }
}

/// Why an attempt that holds a lock does not get its token: its caller would be wrong about who else holds the lock.
fn other_share(request: &Request<'_>) -> Error {
    if request.share == Share::Alone {
        Error::HeldAmongSeveral
    } else {
        Error::HeldAlone
    }
}

/// Whether a caller could have the lock, if nobody came first.
#[must_use]
pub fn could_have(state: State<'_>, request: &Request<'_>, now: UnixMicros) -> bool {
    matches!(admit(state, request, Turn::Now, now), Admission::Granted { .. })
}

fn predecessor(ended: UnixMicros, record: Option<Record<'_>>, now: UnixMicros) -> Predecessor<'_> {
    Predecessor {
        ended,
        overdue: now.since(ended),
        token: record.map(|record| record.token),
        owner: record.and_then(|record| record.owner),
    }
}

fn new_record<'a>(
    request: &Request<'a>,
    in_key: Option<Token>,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Record<'a>, Error> {
    let timestamp = terms.timestamp(now, request.lease)?;
    let token = tokens.next(now, in_key);
    Ok(Record { timestamp, token, id: request.id, owner: request.owner })
}

/// LOCK.ACQUIRE: the lock if nobody has it, or if this attempt has it already. While others wait
/// ahead of the caller, a lock that nobody has is theirs.
///
/// # Errors
/// [`Error::Clock`], [`Error::HeldAmongSeveral`], [`Error::HeldAlone`].
pub fn acquire<'a>(
    state: State<'a>,
    request: &Request<'a>,
    turn: Turn,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Acquire<'a>, Error> {
    match admit(state, request, turn, now) {
        Admission::Granted { in_key, succeeds, holds } => {
            let record = new_record(request, in_key, terms, tokens, now)?;
            Ok(Acquire::Grant { record, succeeds, holds })
        }
        Admission::Already(held) => again(held, request.lease, terms, now),
        Admission::AskedOtherwise => Err(other_share(request)),
        Admission::Refused => Ok(Acquire::Refuse),
    }
}

/// An attempt that has the lock asks again: its lease never becomes shorter.
fn again(held: Record<'_>, lease: Micros, terms: Terms, now: UnixMicros) -> Result<Acquire<'_>, Error> {
    let later = terms.timestamp(now, lease)?;
    let prolongs = later > held.timestamp;
    Ok(if prolongs { Acquire::Prolong(Record { timestamp: later, ..held }) } else { Acquire::Keep(held) })
}

/// LOCK.MACQUIRE: all of several locks with one token, or nothing. The decision for each of them.
///
/// # Errors
/// [`Error::Clock`], [`Error::HeldAmongSeveral`], [`Error::HeldAlone`].
pub fn acquire_all<'a>(
    states: &[State<'a>],
    request: &Request<'a>,
    turn: Turn,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Option<Vec<Acquire<'a>>>, Error> {
    let admissions: Vec<_> = states.iter().map(|state| admit(*state, request, turn, now)).collect();
    if admissions.contains(&Admission::AskedOtherwise) {
        return Err(other_share(request));
    }
    let mut in_keys = None;
    let mut own = None;
    let mut granted = 0_usize;
    for admission in &admissions {
        match admission {
            Admission::Granted { in_key, .. } => {
                granted = granted.saturating_add(1);
                in_keys = in_keys.max(*in_key);
            }
            // An ID matches only if all keys carry that one grant.
            Admission::Already(record) if own.is_none_or(|own| own == record.token) => own = Some(record.token),
            Admission::Already(_) | Admission::AskedOtherwise | Admission::Refused => return Ok(None),
        }
    }
    if granted > 0 && own.is_some() {
        return Ok(None);
    }
    let record = if granted > 0 { Some(new_record(request, in_keys, terms, tokens, now)?) } else { None };
    let decisions = admissions.into_iter().map(|admission| match (admission, record) {
        (Admission::Granted { succeeds, holds, .. }, Some(record)) => Ok(Acquire::Grant { record, succeeds, holds }),
        (Admission::Already(held), _) => again(held, request.lease, terms, now),
        _ => Ok(Acquire::Refuse),
    });
    decisions.collect::<Result<_, _>>().map(Some)
}

/// The lock passes from the holder of `token`, who gave it back, to one who waits.
///
/// # Errors
/// [`Error::Clock`].
pub fn pass_on<'a>(
    token: Token,
    request: &Request<'a>,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Acquire<'a>, Error> {
    let record = new_record(request, Some(token), terms, tokens, now)?;
    let holds = if request.share == Share::Alone { Holds::Alone } else { Holds::Among { replaces: None } };
    Ok(Acquire::Grant { record, succeeds: None, holds })
}

/// LOCK.RECOVER: the lock only if it is expired and nobody waits ahead of the caller.
///
/// # Errors
/// [`Error::Clock`].
pub fn recover<'a>(
    state: State<'a>,
    request: &Request<'a>,
    turn: Turn,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Acquire<'a>, Error> {
    if state.is_expired() {
        acquire(state, request, turn, terms, tokens, now)
    } else {
        Ok(Acquire::Refuse)
    }
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
