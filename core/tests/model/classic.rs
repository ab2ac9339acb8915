//! The classic ways to lock with plain commands: when they give the lock to two clients, and when they do not.
//!
//! One is the sequence documented for SETNX, which keeps the lock's end in the key. On an expired lock it uses either
//! DEL and SETNX, which the documentation warns about, or GETSET. The other is `SET NX PX`, with its two ways to
//! release.

use crate::check;
use stateright::{Model, Property};

/// How a client takes over an expired lock or releases its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A timestamp in the key; if it has expired, DEL, then SETNX.
    DelThenSetnx,
    /// A timestamp in the key; if it has expired, GETSET.
    Getset,
    /// A native expiry; DEL when the work is done.
    PlainDelete,
    /// A native expiry; DEL when the work is done if the key still has the client's value, in one step (Lua).
    CompareAndDelete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Idle,
    /// SETNX replied 0.
    Refused,
    /// GET showed that the lock has expired.
    SawExpired,
    /// It has deleted the expired lock.
    Deleted,
    /// It is working, and believes that it holds the lock until this time.
    Holds(u8),
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// Who wrote the key, and the timestamp in it or its native expiry.
    key: Option<(usize, u8)>,
    clients: Vec<Client>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    ASecondPasses,
    Setnx(usize),
    Get(usize),
    Del(usize),
    Getset(usize),
    SetNxPx(usize),
    /// DEL by a client whose work is done.
    Release(usize),
    Crash(usize),
}

#[derive(Clone)]
struct Classic {
    way: Way,
    clients: usize,
    end: u8,
}

/// The longest lease of all clients.
const LEASE: u8 = 2;
/// The "+ 1" of the documentation.
const MARGIN: u8 = 1;

const EXCLUSION: &str = "at most one client believes it holds the lock";

impl Classic {
    const fn keeps_time_in_key(&self) -> bool {
        matches!(self.way, Way::DelThenSetnx | Way::Getset)
    }
}

impl Model for Classic {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { now: 0, key: None, clients: vec![Client::Idle; self.clients] }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.end {
            actions.push(Action::ASecondPasses);
        }
        for (who, client) in state.clients.iter().enumerate() {
            match client {
                Client::Idle if self.keeps_time_in_key() => actions.push(Action::Setnx(who)),
                Client::Idle => actions.push(Action::SetNxPx(who)),
                Client::Refused => actions.push(Action::Get(who)),
                Client::SawExpired if self.way == Way::Getset => actions.push(Action::Getset(who)),
                Client::SawExpired => actions.push(Action::Del(who)),
                Client::Deleted => actions.push(Action::Setnx(who)),
                // The classic pattern checks the time before it deletes; SET NX PX clients do not.
                Client::Holds(until) if state.now < *until || !self.keeps_time_in_key() => {
                    actions.extend([Action::Release(who), Action::Crash(who)]);
                }
                Client::Holds(_) | Client::Crashed => {}
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let now = state.now;
        let holds = Client::Holds(now + LEASE);
        match action {
            Action::ASecondPasses => {
                next.now += 1;
                let is_native = !self.keeps_time_in_key();
                next.key = next.key.filter(|(_, end)| !is_native || *end > next.now);
            }
            Action::Setnx(who) if state.key.is_none() => {
                next.key = Some((who, now + LEASE + MARGIN));
                next.clients[who] = holds;
            }
            Action::SetNxPx(who) if state.key.is_none() => {
                next.key = Some((who, now + LEASE));
                next.clients[who] = holds;
            }
            Action::Setnx(who) => next.clients[who] = Client::Refused,
            Action::SetNxPx(_) => return None,
            Action::Get(who) => {
                let is_expired = state.key.is_some_and(|(_, timestamp)| timestamp <= now);
                next.clients[who] = if is_expired { Client::SawExpired } else { Client::Idle };
            }
            Action::Del(who) => {
                next.key = None;
                next.clients[who] = Client::Deleted;
            }
            Action::Getset(who) => {
                next.key = Some((who, now + LEASE + MARGIN));
                // A client that finds a timestamp in the future has lost, even though it has written its own.
                let had = state.key.is_some_and(|(_, timestamp)| timestamp > now);
                next.clients[who] = if had { Client::Idle } else { holds };
            }
            Action::Release(who) => {
                if self.way != Way::CompareAndDelete || state.key.is_some_and(|(writer, _)| writer == who) {
                    next.key = None;
                }
                next.clients[who] = Client::Idle;
            }
            Action::Crash(who) => next.clients[who] = Client::Crashed,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| holders(state) <= 1),
            Property::sometimes("a lock is held after an earlier one lapsed", |_, state: &State| {
                state.now > LEASE && holders(state) == 1 && state.clients.contains(&Client::Crashed)
            }),
        ]
    }
}

fn holders(state: &State) -> usize {
    state.clients.iter().filter(|client| matches!(client, Client::Holds(until) if state.now < *until)).count()
}

fn model(way: Way) -> Classic {
    if check::is_large() {
        Classic { way, clients: 4, end: 12 }
    } else {
        Classic { way, clients: 3, end: 7 }
    }
}

#[test]
fn del_then_setnx_on_an_expired_lock_gives_it_to_two() {
    check::fails("DEL, then SETNX", EXCLUSION, &model(Way::DelThenSetnx));
}

#[test]
fn getset_on_an_expired_lock_gives_it_to_one() {
    check::holds("GETSET", model(Way::Getset));
}

#[test]
fn a_plain_delete_by_a_late_owner_takes_another_clients_lock() {
    check::fails("SET NX PX, then DEL", EXCLUSION, &model(Way::PlainDelete));
}

#[test]
fn compare_and_delete_by_a_late_owner_takes_nothing() {
    check::holds("SET NX PX, then compare and delete", model(Way::CompareAndDelete));
}
