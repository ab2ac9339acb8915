//! Who may have the lock: `(what the key holds, request, now) -> decision`, for one key and one holder.
//!
//! The classic sequence in one step: a free key is taken (SETNX), a held one refused (GET), an
//! expired one taken over in place (GETSET), never deleted and re-created. A foreign value is held
//! for as long as it exists.

use super::error::Error;
use super::record::{Id, Owner, Record, Value};
use super::time::{Micros, UnixMicros};
use super::token::{Token, Tokens};
use crate::broken::{self, Mutant};

/// What the key is to everybody but its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// The key does not exist.
    Free,
    /// A timestamp that has not passed; `None`: a client of the classic pattern wrote it.
    Held(UnixMicros, Option<Record<'a>>),
    /// A timestamp that has passed.
    Expired(UnixMicros, Option<Record<'a>>),
    /// No timestamp.
    Foreign,
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
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held(..) => "held",
            Self::Expired(..) => "expired",
            Self::Foreign => "foreign",
        }
    }

    /// Whether nobody has the lock.
    #[must_use]
    pub const fn is_nobodys(&self) -> bool {
        matches!(self, Self::Free | Self::Expired(..))
    }

    /// The record whose grant still stands, expired or not, if it has that token.
    fn granted_as(&self, token: Token) -> Option<(Record<'a>, bool)> {
        match *self {
            Self::Held(_, Some(record)) if record.token == token => Some((record, true)),
            Self::Expired(_, Some(record)) if record.token == token => Some((record, false)),
            _ => None,
        }
    }
}

/// Settings that the rules need.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How much longer than the lease contenders wait: the documented "+ 1".
    pub margin: Micros,
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// How long the grant is to be good.
    pub lease: Micros,
    /// The attempt.
    pub id: Option<Id>,
    /// A label.
    pub owner: Option<Owner<'a>>,
}

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

/// What becomes of a request for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire<'a> {
    /// It is the caller's: write this.
    Grant {
        /// The new value.
        record: Record<'a>,
        /// Whom it succeeds, if the lock had expired.
        succeeds: Option<Predecessor<'a>>,
    },
    /// The attempt holds it already, and the lease now ends later: write this.
    Prolong(Record<'a>),
    /// The attempt holds it already, for at least as long: this stays.
    Keep(Record<'a>),
    /// Somebody else has it.
    Refuse,
}

/// `now + lease + margin`, or why there is no such time.
fn timestamp(now: UnixMicros, lease: Micros, terms: Terms) -> Result<UnixMicros, Error> {
    if now.is_plausible() {
        let margin = if broken::is(Mutant::NoMargin) { Micros(0) } else { terms.margin };
        Ok(now.after(lease).after(margin))
    } else {
        Err(Error::Clock)
    }
}

/// A new grant of a lock that nobody has: in a free key, or over an expired value.
fn grant<'a>(
    request: &Request<'a>,
    expired: Option<(UnixMicros, Option<Record<'a>>)>,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Acquire<'a>, Error> {
    let in_key = expired.and_then(|(_, record)| record).map(|record| record.token);
    let record = new_record(request, in_key, terms, tokens, now)?;
    let succeeds = expired.map(|(ended, record)| Predecessor {
        ended,
        overdue: now.since(ended),
        token: in_key,
        owner: record.and_then(|record| record.owner),
    });
    Ok(Acquire::Grant { record, succeeds })
}

fn new_record<'a>(
    request: &Request<'a>,
    in_key: Option<Token>,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Record<'a>, Error> {
    let timestamp = timestamp(now, request.lease, terms)?;
    let token = tokens.next(now, in_key);
    Ok(Record {
        timestamp,
        token,
        id: request.id,
        owner: if broken::is(Mutant::NoOwner) { None } else { request.owner },
    })
}

/// LOCK.ACQUIRE: the lock if nobody has it, or if this attempt has it already. While others wait
/// ahead of the caller, a lock that nobody has is theirs.
///
/// # Errors
/// [`Error::Clock`].
pub fn acquire<'a>(
    state: State<'a>,
    request: &Request<'a>,
    others_ahead: bool,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Acquire<'a>, Error> {
    match state {
        State::Free | State::Expired(..) if others_ahead => Ok(Acquire::Refuse),
        State::Free => grant(request, None, terms, tokens, now),
        State::Expired(ended, record) => grant(request, Some((ended, record)), terms, tokens, now),
        State::Held(until, Some(held)) if held.id.is_some() && held.id == request.id => {
            let later = timestamp(now, request.lease, terms)?;
            Ok(if later > until && !broken::is(Mutant::SameIdNoLease) {
                Acquire::Prolong(Record { timestamp: later, ..held })
            } else {
                Acquire::Keep(held)
            })
        }
        State::Held(..) | State::Foreign => Ok(Acquire::Refuse),
    }
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
    Ok(Acquire::Grant { record, succeeds: None })
}

/// LOCK.RECOVER: the lock only if it is expired and nobody waits ahead of the caller.
///
/// # Errors
/// [`Error::Clock`].
pub fn recover<'a>(
    state: State<'a>,
    request: &Request<'a>,
    others_ahead: bool,
    terms: Terms,
    tokens: &mut Tokens,
    now: UnixMicros,
) -> Result<Acquire<'a>, Error> {
    match state {
        State::Expired(ended, record) if !others_ahead => grant(request, Some((ended, record)), terms, tokens, now),
        _ => Ok(Acquire::Refuse),
    }
}

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
    let (record, _) = state.granted_as(token)?;
    (timestamp < record.timestamp).then_some(Record { timestamp, ..record })
}

/// LOCK.CANCEL: the token that an attempt holds the lock with, if it does.
#[must_use]
pub fn held_by(state: State<'_>, id: Id) -> Option<Token> {
    match state {
        State::Held(_, Some(record)) if record.id == Some(id) => Some(record.token),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: UnixMicros = UnixMicros(1_763_710_000_482_913);
    const TERMS: Terms = Terms { margin: Micros(1_000_000) };
    const LEASE: Micros = Micros(30_000_000);
    const PLAIN: Request<'static> = Request { lease: LEASE, id: None, owner: None };

    fn ours(left_us: i64) -> Record<'static> {
        Record {
            timestamp: UnixMicros(NOW.0.saturating_add_signed(left_us)),
            token: Token::new(1_763_709_000_000_000).unwrap(),
            id: Id::parse(b"7"),
            owner: Owner::parse(b"cron@db1"),
        }
    }

    fn states() -> Vec<State<'static>> {
        [
            None,
            Some(Value::Ours(ours(1))),
            Some(Value::Classic(UnixMicros(NOW.0 + 1))),
            Some(Value::Ours(ours(0))),
            Some(Value::Classic(NOW)),
            Some(Value::Foreign),
        ]
        .map(|value| State::of(value, NOW))
        .to_vec()
    }

    #[test]
    fn the_table_of_the_contract() {
        let token = ours(0).token;
        let other = Token::new(token.get() + 1).unwrap();
        // state, ACQUIRE grants, RECOVER grants, EXTEND, RELEASE of its token
        let table = [
            ("free", true, false, false, Release::Over),
            ("held", false, false, true, Release::InTime),
            ("held", false, false, false, Release::Over),
            ("expired", true, true, false, Release::Late),
            ("expired", true, true, false, Release::Over),
            ("foreign", false, false, false, Release::Over),
        ];
        for (state, (name, acquires, recovers, extends, released)) in states().into_iter().zip(table) {
            let granted = |decision| matches!(decision, Ok(Acquire::Grant { .. }));
            assert_eq!(state.name(), name);
            assert_eq!(granted(acquire(state, &PLAIN, false, TERMS, &mut Tokens::new(), NOW)), acquires, "{state:?}");
            assert_eq!(granted(recover(state, &PLAIN, false, TERMS, &mut Tokens::new(), NOW)), recovers, "{state:?}");
            assert_eq!(extend(state, token, LEASE, TERMS, NOW).unwrap().is_some(), extends, "{state:?}");
            assert_eq!(release(state, token), released, "{state:?}");
            assert_eq!(release(state, other), Release::Over, "{state:?}");
            assert_eq!(extend(state, other, LEASE, TERMS, NOW), Ok(None), "{state:?}");
        }
    }

    #[test]
    fn a_timestamp_is_now_and_lease_and_margin() {
        let Ok(Acquire::Grant { record, succeeds }) =
            acquire(State::Free, &PLAIN, false, TERMS, &mut Tokens::new(), NOW)
        else {
            panic!("a free lock is granted")
        };
        assert_eq!(record.encode().as_bytes(), b"1763710031.4829131763710000482913");
        assert_eq!(succeeds, None);
    }

    #[test]
    fn the_successor_learns_whom_it_follows() {
        let state = State::of(Some(Value::Ours(ours(-2_500_000))), NOW);
        let Ok(Acquire::Grant { succeeds: Some(before), record }) =
            recover(state, &PLAIN, false, TERMS, &mut Tokens::new(), NOW)
        else {
            panic!("an expired lock is recovered")
        };
        assert_eq!(before.overdue, Micros(2_500_000));
        assert_eq!(before.token, Some(ours(0).token));
        assert_eq!(before.owner, Owner::parse(b"cron@db1"));
        assert!(record.token > ours(0).token);
    }

    #[test]
    fn the_same_attempt_gets_its_token_again_and_never_a_shorter_lease() {
        let again = |lease, left_us| {
            let request = Request { lease, id: Id::parse(b"07"), owner: None };
            acquire(State::of(Some(Value::Ours(ours(left_us))), NOW), &request, false, TERMS, &mut Tokens::new(), NOW)
                .unwrap()
        };
        assert_eq!(again(LEASE, 40_000_000), Acquire::Keep(ours(40_000_000)));
        assert_eq!(again(LEASE, 1), Acquire::Prolong(ours(31_000_000)));
    }

    #[test]
    fn a_newcomer_never_overtakes_the_queue() {
        for state in states() {
            let tried = acquire(state, &PLAIN, true, TERMS, &mut Tokens::new(), NOW);
            assert_eq!(tried, Ok(Acquire::Refuse), "{state:?}");
            assert_eq!(recover(state, &PLAIN, true, TERMS, &mut Tokens::new(), NOW), Ok(Acquire::Refuse), "{state:?}");
        }
        // The holder is no newcomer.
        let request = Request { id: Id::parse(b"7"), ..PLAIN };
        let held = State::of(Some(Value::Ours(ours(1))), NOW);
        assert!(matches!(
            acquire(held, &request, true, TERMS, &mut Tokens::new(), NOW),
            Ok(Acquire::Prolong(record)) if record.token == ours(0).token
        ));
    }

    #[test]
    fn a_lock_that_is_passed_on_has_no_predecessor_and_a_larger_token() {
        let ahead = Token::new(NOW.0 + 5).unwrap();
        let passed = pass_on(ahead, &PLAIN, TERMS, &mut Tokens::new(), NOW);
        let Ok(Acquire::Grant { record, succeeds: None }) = passed else { panic!("{passed:?}") };
        assert!(record.token > ahead);
    }

    #[test]
    fn a_session_that_ends_never_makes_its_lock_last_longer() {
        let ends = |left_us| end_session(State::of(Some(Value::Ours(ours(left_us))), NOW), ours(0).token, TERMS, NOW);
        assert_eq!(ends(30_000_000), Some(ours(1_000_000)));
        assert_eq!(ends(1_000_000), None);
        assert_eq!(ends(-1), None);
        let other = Token::new(1).unwrap();
        assert_eq!(end_session(State::of(Some(Value::Ours(ours(9_000_000))), NOW), other, TERMS, NOW), None);
    }

    #[test]
    fn without_an_id_nobody_is_taken_for_the_holder() {
        let mut held = ours(1);
        held.id = None;
        let state = State::of(Some(Value::Ours(held)), NOW);
        assert_eq!(acquire(state, &PLAIN, false, TERMS, &mut Tokens::new(), NOW), Ok(Acquire::Refuse));
    }

    #[test]
    fn a_server_without_a_clock_grants_nothing() {
        let now = UnixMicros(100);
        assert_eq!(acquire(State::Free, &PLAIN, false, TERMS, &mut Tokens::new(), now), Err(Error::Clock));
        let held = State::of(Some(Value::Ours(ours(1))), now);
        assert_eq!(extend(held, ours(0).token, LEASE, TERMS, now), Err(Error::Clock));
        assert_eq!(release(held, ours(0).token), Release::InTime);
    }

    #[test]
    fn the_margin_is_not_the_holders() {
        let left = |left_us| check(State::of(Some(Value::Ours(ours(left_us))), NOW), ours(0).token, TERMS, NOW);
        assert_eq!(left(1_500_000), Micros(500_000));
        assert_eq!(left(900_000), Micros(0));
        assert_eq!(left(-1), Micros(0));
    }

    #[test]
    fn a_native_expiry_is_rounded_up() {
        assert_eq!(Retention::Ms(0).expire_at_ms(UnixMicros(1_001)), Some(2));
        assert_eq!(Retention::Ms(60_000).expire_at_ms(UnixMicros(1_000)), Some(60_001));
        assert_eq!(Retention::Forever.expire_at_ms(UnixMicros(1_000)), None);
    }

    fn any_value() -> impl Strategy<Value = Option<Value<'static>>> {
        let near = NOW.0 - 10..NOW.0 + 10;
        prop_oneof![
            Just(None),
            Just(Some(Value::Foreign)),
            near.clone().prop_map(|at| Some(Value::Classic(UnixMicros(at)))),
            (near, 0..3_u64, 0..3_u64).prop_map(|(at, token, id)| Some(Value::Ours(Record {
                timestamp: UnixMicros(at),
                token: Token::new(NOW.0 + token).unwrap(),
                id: Id::parse(id.to_string().as_bytes()),
                owner: None,
            }))),
        ]
    }

    proptest! {
        #[test]
        fn a_lock_that_somebody_has_is_never_granted(value in any_value(), id in 0..3_u64) {
            let request = Request { id: Id::parse(id.to_string().as_bytes()), ..PLAIN };
            let mut tokens = Tokens::new();
            let decision = acquire(State::of(value, NOW), &request, false, TERMS, &mut tokens, NOW).unwrap();
            let (taken, mine, before) = match value {
                None => (false, false, None),
                Some(Value::Foreign) => (true, false, None),
                Some(Value::Classic(at)) => (at > NOW, false, None),
                Some(Value::Ours(record)) => (record.timestamp > NOW, record.id == request.id, Some(record.token)),
            };
            match decision {
                Acquire::Grant { record, .. } => {
                    prop_assert!(!taken);
                    prop_assert!(Some(record.token) > before);
                    prop_assert_eq!(record.timestamp.0, NOW.0 + 31_000_000);
                }
                Acquire::Prolong(Record { token, .. }) | Acquire::Keep(Record { token, .. }) => {
                    prop_assert!(taken && mine);
                    prop_assert_eq!(Some(token), before);
                }
                Acquire::Refuse => prop_assert!(taken && !mine),
            }
        }
    }
}
