//! Many attempts leave a piece at a time. Each piece spends at most the keys in an iteration's budget plus those of one
//! grant.

use super::*;
use crate::engine::queue::{Channel, Handle, ReplyShape, Waiter};
use crate::engine::{Blocked, KeyName, KeyNames, Notified, Shape};
use crate::lock::record::Id;
use crate::lock::request::Share;
use crate::lock::state::State;
use crate::lock::terms::Terms;
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use std::rc::Rc;

/// The number of keys of each attempt.
const KEYS: usize = 1_024;
/// The number of attempts.
const ATTEMPTS: usize = 12;
/// More than a piece may cost: a part plus the last grant.
const PIECE: usize = Budget::PART + KEYS;

const LIMITS: Limits = Limits {
    waiters: 1_000_000,
    queued: 1_000_000,
    claim: Micros(2_000),
    result: 65_536,
    place: Micros(10_000_000),
    tick: Micros(100_000),
};

#[derive(Clone, Copy)]
struct At(u64);

impl Clock for At {
    fn now(self) -> UnixMicros {
        UnixMicros(1_763_710_000_000_000 + self.0)
    }

    fn monotonic(self) -> MonotonicMicros {
        MonotonicMicros(self.0)
    }
}

fn names(attempt: usize) -> Vec<Vec<u8>> {
    (0..KEYS).map(|key| format!("{attempt}-{key}").into_bytes()).collect()
}

/// Makes all attempts wait to be notified on a channel, but no longer than connection 1 lasts.
fn waiting(engine: &mut Engine<u64>) {
    for attempt in 0..ATTEMPTS {
        let channel = Rc::new(Channel { name: b"c"[..].into(), is_sharded: false });
        let names = names(attempt);
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let waiter = Waiter {
            handle: Handle::Channel { channel, session: Some(1), sent: MonotonicMicros(0) },
            share: Share::Alone,
            lease: Micros(60_000_000),
            id: Id::parse(attempt.to_string().as_bytes()),
            owner: None,
            shape: ReplyShape::Token,
            session: true,
            wants_result: false,
            since: MonotonicMicros(0),
            until: MonotonicMicros(5_000),
        };
        engine.join(KeyNames::new(0, &names), Blocked::default(), waiter);
    }
}

/// Grants all attempts their keys, which they have not claimed.
fn unclaimed(engine: &mut Engine<u64>) {
    waiting(engine);
    let tickets: Vec<Ticket> = engine.queues.tickets().collect();
    for (attempt, ticket) in tickets.into_iter().enumerate() {
        let notified = Notified { ticket, lease: Micros(2_000), is_sent: true };
        let (locks, terms) = (vec![State::Free; KEYS], Terms { margin: Micros(0) });
        let (mut decisions, granted) = engine.grant_all(ticket, &locks, terms, Some(notified), At(0).now()).unwrap();
        for (name, decision) in names(attempt).iter().zip(&mut decisions) {
            engine.commit(decision, KeyName { db: 0, name }, Shape::One);
        }
        drop(decisions);
        engine.granted_to_waiter(ticket, granted, Some(notified), At(0));
    }
    assert_eq!((engine.claims.len(), engine.queues.waiters()), (ATTEMPTS, 0));
}

/// Calls `work` with an iteration's budget until nothing is `left`. No piece may spend too many keys, and there must be
/// more than one piece.
fn in_pieces(
    engine: &mut Engine<u64>,
    left: impl Fn(&Engine<u64>) -> usize,
    mut work: impl FnMut(&mut Engine<u64>, &mut Budget),
) {
    let mut pieces = 0;
    let mut before = left(engine);
    assert!(before > 0);
    while before > 0 {
        work(engine, &mut Budget::of(2_048));
        let now = left(engine);
        assert!(now < before && before - now <= PIECE, "{} keys in one piece", before - now);
        (before, pieces) = (now, pieces + 1);
    }
    assert!(pieces >= ATTEMPTS - 1, "{pieces}");
}

#[test]
fn unclaimed_grants_of_an_earlier_reign_leave_in_pieces() {
    let mut engine = Engine::default();
    unclaimed(&mut engine);
    engine.demoted();
    in_pieces(&mut engine, |engine| engine.leftovers.unclaimed_keys(), Engine::leave_unserved);
    assert!(!engine.has_leaving());
}

#[test]
fn unclaimed_grants_of_a_connection_that_ended_leave_in_pieces() {
    let mut engine = Engine::default();
    unclaimed(&mut engine);
    engine.connection_ended(1, At(1).now(), LIMITS, At(1));
    for client in 2..9 {
        engine.connection_ended(client, At(1).now(), LIMITS, At(1));
    }
    assert_eq!(engine.outstanding.lost(), KEYS, "all events together do just one piece at once");
    let held = |engine: &Engine<u64>| engine.claims.len() * KEYS;
    in_pieces(&mut engine, held, |engine, budget| engine.leave_ended(budget, LIMITS, At(1)));
    assert_eq!(engine.outstanding.lost(), ATTEMPTS * KEYS);
    engine.demoted();
    let lost = |engine: &Engine<u64>| engine.leftovers.lost_keys();
    in_pieces(&mut engine, lost, Engine::leave_unserved);
}

#[test]
fn unclaimed_grants_that_expire_together_leave_in_pieces() {
    let mut engine = Engine::default();
    unclaimed(&mut engine);
    let held = |engine: &Engine<u64>| engine.claims.len() * KEYS;
    // The sockets are read first, in two turns.
    for _ in 0..2 {
        engine.end_unclaimed(&mut Budget::of(Budget::PART), false, LIMITS, At(2_001));
    }
    in_pieces(&mut engine, held, |engine, budget| {
        budget.part(|part| engine.end_unclaimed(part, false, LIMITS, At(2_001)));
    });
    assert_eq!(engine.queues.places(), ATTEMPTS);
}

#[test]
fn waits_with_long_names_that_time_out_together_leave_in_pieces() {
    let mut engine = Engine::default();
    let name = vec![b'x'; 4_096];
    for client in 0..600_u64 {
        let names: Vec<Vec<u8>> =
            (0..8).map(|key| [format!("{client}-{key}").as_bytes(), &name[8..]].concat()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let waiter = Waiter {
            handle: Handle::Blocked { handle: client, client },
            share: Share::Alone,
            lease: Micros(1),
            id: None,
            owner: None,
            shape: ReplyShape::Token,
            session: false,
            wants_result: false,
            since: MonotonicMicros(0),
            until: MonotonicMicros(5_000),
        };
        engine.join(KeyNames::new(0, &names), Blocked::default(), waiter);
    }
    let mut pieces = 0;
    while engine.queues.waiters() > 0 {
        let before = engine.queues.waiters();
        engine.time_out(&mut Budget::of(Budget::PART), LIMITS, At(5_000));
        // 32 kB of names each.
        assert!((1..=Budget::PART / 8 + 1).contains(&(before - engine.queues.waiters())));
        pieces += 1;
    }
    assert!(pieces >= 18, "{pieces}");
}

#[test]
fn sessions_of_an_earlier_reign_and_of_an_ended_connection_leave_in_pieces() {
    use crate::engine::sessions::Binding;
    use crate::lock::token::Token;
    let many = 30_000;
    let bind = |engine: &mut Engine<u64>| {
        for number in 0..many {
            let binding = Binding { client: 1, token: Token::new(number).unwrap(), until: UnixMicros(u64::MAX) };
            engine.sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding, UnixMicros(0));
        }
    };
    let mut engine = Engine::<u64>::default();
    bind(&mut engine);
    engine.connection_ended(1, UnixMicros(1), LIMITS, At(1));
    in_pieces(&mut engine, |engine| engine.sessions.len(), |engine, budget| engine.leave_ended(budget, LIMITS, At(1)));
    // Their ends have yet to be written.
    assert_eq!(engine.ended.len(), usize::try_from(many).unwrap());
    bind(&mut engine);
    engine.demoted();
    assert!(engine.sessions.is_empty() && engine.ended.is_empty());
    in_pieces(&mut engine, |engine| engine.leftovers.bindings(), Engine::leave_unserved);
    assert!(!engine.has_leaving());
}

#[test]
fn a_newer_command_ends_many_unclaimed_grants_in_pieces() {
    let mut engine = Engine::default();
    unclaimed(&mut engine);
    let mut budget = Budget::of(256);
    let tickets: Vec<Ticket> = engine.claims.tickets().collect();
    let given_up = tickets.iter().filter_map(|ticket| engine.replace_unclaimed(*ticket, &mut budget)).count();
    assert_eq!((given_up, engine.outstanding.lost()), (1, KEYS));
    // None of them can be claimed now.
    for attempt in 0..ATTEMPTS {
        let names = names(attempt);
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        assert!(engine.own_claims(KeyNames::new(0, &names), Id::parse(attempt.to_string().as_bytes())).same.is_none());
    }
    let left = |engine: &Engine<u64>| engine.claims.len() * KEYS;
    while left(&engine) > 0 {
        let before = left(&engine);
        engine.leave_ended(&mut Budget::of(2_048), LIMITS, At(1));
        assert!(before - left(&engine) <= PIECE);
    }
    assert_eq!(engine.queues.places(), 0, "the newer command has taken their place");
}
