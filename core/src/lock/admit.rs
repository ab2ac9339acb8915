//! The rule for granting a lock: `(what the key holds, request, now) -> decision`.
//!
//! One rule covers one holder and several: a caller is granted the lock when fewer holders are live than it allows, and
//! no plain holder is among them. For several keys the rule is applied to each: all or nothing.
//!
//! The classic sequence in one step: a free key is taken (SETNX), a held one refused (GET), and an expired one taken
//! over in place (GETSET), never deleted and re-created. A foreign value counts as held while it exists.

use super::error::Error;
use super::record::{Owner, Record};
use super::request::{Request, Share};
use super::state::State;
use super::terms::Terms;
use super::time::{Micros, UnixMicros};
use super::token::{Token, Tokens};

/// The holder of an expired lock, replaced by a new grant.
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

/// How a grant is stored in its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// In its current form.
    AsBefore,
    /// As the only holder: a string.
    Alone,
    /// As one of several holders: a member of a sorted set, in an expired holder's slot if `replaces` names one.
    Among {
        /// The expired holder's token.
        replaces: Option<Token>,
    },
}

impl Holds {
    /// Whether the grant is one of several; `several`: whether the key held several before.
    #[must_use]
    pub const fn is_among(self, several: bool) -> bool {
        match self {
            Self::AsBefore => several,
            Self::Alone => false,
            Self::Among { .. } => true,
        }
    }

    /// The expired holder whose slot the grant takes.
    #[must_use]
    pub const fn replaces(self) -> Option<Token> {
        match self {
            Self::Among { replaces } => replaces,
            Self::AsBefore | Self::Alone => None,
        }
    }
}

/// Whether it is the caller's turn for a lock that is free for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may.
    Now,
    /// Others are ahead in the queue: the lock is theirs.
    Behind,
    /// No lock is granted now.
    Barred,
}

/// Whether a caller may have the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<'a> {
    /// It may.
    Granted {
        /// The largest token in the key.
        in_key: Option<Token>,
        /// The predecessor, if the lock had expired.
        succeeds: Option<Predecessor<'a>>,
        /// How the grant is stored in the key.
        holds: Holds,
    },
    /// The attempt already holds it.
    Already(Record<'a>),
    /// The attempt already holds it, but asks for the other form: alone, or as one of several.
    AskedOtherwise,
    /// Others hold it.
    Refused,
}

/// The decision on a request for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire<'a> {
    /// Grant it: write this.
    Grant {
        /// The new value.
        record: Record<'a>,
        /// The predecessor, if the lock had expired.
        succeeds: Option<Predecessor<'a>>,
        /// How the grant is stored in the key.
        holds: Holds,
    },
    /// The attempt already holds it, and its lease now ends later: write this.
    Prolong(Record<'a>),
    /// The attempt already holds it for at least that long: leave the key as it is.
    Keep(Record<'a>),
    /// Somebody else holds it.
    Refuse,
}

/// The rule: a caller is granted the lock when fewer holders are live than it allows. While others are ahead of it in
/// the queue, the lock is theirs.
///
/// A held lock is refused, whoever is waiting. An expired one is taken over, and the decision names the predecessor:
///
/// ```
/// use redis_lock_core::lock::record::{Record, Value};
/// use redis_lock_core::lock::request::{Request, Share};
/// use redis_lock_core::lock::admit::{admit, Admission, Turn};
/// use redis_lock_core::lock::state::State;
/// use redis_lock_core::lock::time::{Micros, UnixMicros};
/// use redis_lock_core::lock::token::Token;
///
/// let start = UnixMicros(1_763_710_000_000_000);
/// let token = Token::new(1_763_710_000_000_000).ok_or("too large")?;
/// let held = Record { timestamp: start.after(Micros::from_ms(31_000)), token, id: None, owner: None };
/// let request = Request { share: Share::Alone, lease: Micros::from_ms(30_000), id: None, owner: None };
///
/// let early = State::of(Some(Value::Ours(held)), start);
/// assert_eq!(admit(early, &request, Turn::Now, start), Admission::Refused);
///
/// let now = start.after(Micros::from_ms(40_000));
/// let late = State::of(Some(Value::Ours(held)), now);
/// let Admission::Granted { in_key, succeeds: Some(predecessor), .. } = admit(late, &request, Turn::Now, now) else {
///     return Err("not granted".into());
/// };
/// assert_eq!((in_key, predecessor.overdue), (Some(token), Micros::from_ms(9_000)));
///
/// // Somebody waits ahead: the lock is theirs.
/// assert_eq!(admit(late, &request, Turn::Behind, now), Admission::Refused);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

/// Why an attempt that holds a lock does not get its token again: its caller would be mistaken about the other holders.
#[must_use]
pub fn other_share(request: &Request<'_>) -> Error {
    if request.share == Share::Alone {
        Error::HeldAmongSeveral
    } else {
        Error::HeldAlone
    }
}

/// Whether a caller could have the lock if nobody waited ahead of it.
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

/// LOCK.ACQUIRE: grants the lock if nobody holds it, or if this attempt already holds it. While others are ahead of the
/// caller in the queue, a free lock is theirs.
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

/// Called when the attempt that holds the lock asks again: its lease never becomes shorter.
fn again(held: Record<'_>, lease: Micros, terms: Terms, now: UnixMicros) -> Result<Acquire<'_>, Error> {
    let later = terms.timestamp(now, lease)?;
    let prolongs = later > held.timestamp;
    Ok(if prolongs { Acquire::Prolong(Record { timestamp: later, ..held }) } else { Acquire::Keep(held) })
}

/// LOCK.MACQUIRE: grants several locks under one token, or none of them. Returns the decision for each lock.
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
            // An ID matches only if all keys hold the same grant.
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

/// Called when the holder of `token` released the lock: the lock passes to a waiter.
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

/// LOCK.RECOVER: grants the lock only if it has expired and nobody waits ahead of the caller.
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
