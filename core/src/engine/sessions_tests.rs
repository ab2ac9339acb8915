//! Bindings of locks to connections: which of them have ended, and what stays in memory.

use super::*;
use proptest::prelude::*;

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// Everything that ended with a connection.
fn end(sessions: &mut Sessions, client: u64) -> Vec<(LockKey, Token)> {
    sessions.end(client, UnixMicros(1));
    std::iter::from_fn(|| sessions.next_over()).map(|(grant, _)| grant).collect()
}

fn binding(client: u64, number: u64, until: u64) -> Binding {
    Binding { client, token: token(number), until: UnixMicros(until) }
}

#[test]
fn a_lock_that_is_bound_again_belongs_to_the_newer_connection() {
    let mut sessions = Sessions::default();
    sessions.bind(KeyName::new(0, b"k"), binding(1, 5, 100), UnixMicros(0));
    sessions.bind(KeyName::new(0, b"k"), binding(2, 5, 100), UnixMicros(0));
    assert_eq!(sessions.len(), 1);
    assert_eq!(end(&mut sessions, 1), []);
    assert_eq!(end(&mut sessions, 2), [((0, b"k"[..].into()), token(5))]);
    assert!(sessions.is_empty() && sessions.clients.is_empty());
}

#[test]
fn bindings_end_when_another_grant_is_the_only_one() {
    let mut sessions = Sessions::default();
    for number in 5..8 {
        sessions.bind(KeyName::new(0, b"k"), binding(1, number, 100), UnixMicros(0));
    }
    sessions.written(KeyName::new(0, b"k"), token(5), UnixMicros(200), true);
    assert_eq!(sessions.binding(KeyName::new(0, b"k"), token(5)).unwrap().until, UnixMicros(200));
    sessions.unbind_others(KeyName::new(0, b"k"), Some(token(5)));
    assert_eq!(sessions.len(), 1);
    sessions.written(KeyName::new(0, b"k"), token(6), UnixMicros(200), false);
    assert!(sessions.is_empty());
}

#[test]
fn sessions_that_expired_do_not_pile_up() {
    let mut sessions = Sessions::default();
    for number in 0..100_000_u64 {
        sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding(1, number, number + 10), UnixMicros(number));
    }
    assert!(sessions.len() <= 2 * FEW, "{}", sessions.len());
}

#[test]
fn expired_sessions_stay_until_there_are_many() {
    let mut sessions = Sessions::default();
    for number in 0..FEW {
        sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding(1, number as u64, 10), UnixMicros(10));
        assert_eq!(sessions.len(), number + 1);
    }
    assert!(sessions.holds(1) && !sessions.holds(2));
    for left in [FEW - 2, FEW - 4] {
        sessions.bind(KeyName::new(0, b"k"), binding(2, 9, 11), UnixMicros(10));
        sessions.unbind(KeyName::new(0, b"k"), token(9));
        assert_eq!(sessions.len(), left, "two are dropped for each new one");
    }
    sessions = Sessions::default();
    assert!(sessions.is_empty() && !sessions.holds(1));
}

#[test]
fn a_sweep_reaches_all_connections_and_keeps_live_sessions() {
    let mut sessions = Sessions::default();
    let many = u64::try_from(FEW).unwrap();
    for number in 0..many {
        let until = if number % 2 == 0 { 10 } else { 1_000 };
        sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding(number % 5, number, until), UnixMicros(0));
    }
    for number in many..many + many / 2 {
        sessions.bind(KeyName::new(0, &number.to_be_bytes()), binding(7, number, 1_000), UnixMicros(10));
    }
    let bindings = sessions.locks.iter().flat_map(|(_, _, bindings)| bindings.values());
    assert_eq!(bindings.filter(|binding| binding.until <= UnixMicros(10)).count(), 0);
    assert_eq!(sessions.len(), FEW);
}

#[test]
fn grants_of_an_ended_connection_end_at_once_and_leave_one_by_one() {
    let mut sessions = Sessions::default();
    for number in 0..4 {
        sessions.bind(KeyName::new(0, &[number]), binding(1, u64::from(number), 100), UnixMicros(0));
    }
    sessions.bind(KeyName::new(0, &[9]), binding(2, 9, 100), UnixMicros(0));
    sessions.end(1, UnixMicros(50));
    sessions.end(3, UnixMicros(50));
    for number in 0..4 {
        assert!(sessions.has_ended(KeyName::new(0, &[number]), token(number.into())));
        assert_eq!(sessions.binding(KeyName::new(0, &[number]), token(number.into())), None);
        assert_eq!(sessions.bindings(KeyName::new(0, &[number])).count(), 0);
    }
    assert!(
        !sessions.has_ended(KeyName::new(0, &[9]), token(9))
            && sessions.binding(KeyName::new(0, &[9]), token(9)).is_some()
    );
    // A newer connection, an extension and a release: the old connection's end no longer counts.
    sessions.bind(KeyName::new(0, &[0]), binding(2, 0, 100), UnixMicros(0));
    sessions.written(KeyName::new(0, &[1]), token(1), UnixMicros(200), false);
    sessions.unbind(KeyName::new(0, &[2]), token(2));
    assert!(sessions.has_over());
    assert_eq!(sessions.next_over(), Some((((0, [3][..].into()), token(3)), UnixMicros(50))));
    assert_eq!(sessions.next_over(), None);
    assert!(!sessions.has_over() && sessions.binding(KeyName::new(0, &[0]), token(0)).is_some());
    assert_eq!(sessions.len(), 2);
}

proptest! {
    #[test]
    fn sessions_do_what_a_plain_list_does(
        steps in prop::collection::vec((0..6_u8, 0..3_i32, 0..4_u8, 0..4_u64, 0..3_u64), 1..100),
    ) {
        let mut sessions = Sessions::default();
        let mut plain: Vec<(i32, u8, u64, u64)> = Vec::new();
        for (step, db, key, client, number) in steps {
            let name = [key];
            match step {
                0 => {
                    sessions.bind(KeyName::new(db, &name), binding(client, number, 9), UnixMicros(0));
                    plain.retain(|entry| (entry.0, entry.1, entry.3) != (db, key, number));
                    plain.push((db, key, client, number));
                }
                1 => {
                    sessions.unbind(KeyName::new(db, &name), token(number));
                    plain.retain(|entry| (entry.0, entry.1, entry.3) != (db, key, number));
                }
                2 => {
                    sessions.unbind_others(KeyName::new(db, &name), Some(token(number)));
                    plain.retain(|entry| (entry.0, entry.1) != (db, key) || entry.3 == number);
                }
                3 => sessions.written(KeyName::new(db, &name), token(number), UnixMicros(10), true),
                4 => {
                    sessions.written(KeyName::new(db, &name), token(number), UnixMicros(10), false);
                    plain.retain(|entry| (entry.0, entry.1) != (db, key) || entry.3 == number);
                }
                _ => {
                    let mut ended: Vec<_> = end(&mut sessions, client).into_iter()
                        .map(|((db, name), token)| (db, name[0], token.get())).collect();
                    let mut expected: Vec<_> = plain.iter().filter(|entry| entry.2 == client)
                        .map(|entry| (entry.0, entry.1, entry.3)).collect();
                    ended.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(ended, expected);
                    plain.retain(|entry| entry.2 != client);
                }
            }
            prop_assert_eq!(sessions.len(), plain.len());
            prop_assert!(sessions.locks.iter().all(|(_, _, bindings)| !bindings.is_empty()));
            prop_assert_eq!(sessions.clients.values().map(BTreeSet::len).sum::<usize>(), plain.len());
            for db in 0..3 {
                for key in 0..4_u8 {
                    let found: Vec<_> =
                        sessions.bindings(KeyName::new(db, &[key])).map(|binding| (binding.token.get(), binding.client)).collect();
                    let mut expected: Vec<_> = plain.iter().filter(|entry| (entry.0, entry.1) == (db, key))
                        .map(|entry| (entry.3, entry.2)).collect();
                    expected.sort_unstable();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
