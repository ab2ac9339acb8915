//! The scopes in which the protocol is checked: the participants, and how many times each thing may go wrong.

use crate::check::{self, is_large};
use crate::clients::Kind;
use crate::fake::Mutant;
use crate::protocol::{Budget, Fact, Protocol, Scope};
use redis_lock_core::lock::retention::Retention;

const POLLS: Kind = Kind::Lock { waits: false, has_ids: true, session: false };
const WAITS: Kind = Kind::Lock { waits: true, has_ids: true, session: false };
const WAITS_UNNAMED: Kind = Kind::Lock { waits: true, has_ids: false, session: false };
const SESSION: Kind = Kind::Lock { waits: true, has_ids: true, session: true };

const NOTHING: Budget = Budget {
    crashes: 0,
    resends: 0,
    late: 0,
    extends: 0,
    cancels: 0,
    time_outs: 0,
    breaks: 0,
    places_over: 0,
    clock_ahead: 0,
    clock_back: 0,
};

/// A lease of one second, a margin of one second.
fn scope(clients: &[(Kind, u8)], horizon: u8, budget: Budget) -> Scope {
    Scope {
        clients: clients.to_vec(),
        lease: 1,
        margin: 1,
        retention: Retention::Ms(1_000),
        horizon,
        budget,
        mutant: Mutant::None,
    }
}

/// Clients that ask, work too long, extend, crash and release late; a clock that runs ahead by the margin.
pub fn leases() -> Scope {
    let budget = Budget { extends: 1, crashes: 1, clock_ahead: 1, ..NOTHING };
    if is_large() {
        let budget = Budget { extends: 2, clock_back: 1, ..budget };
        Scope { lease: 2, ..scope(&[(POLLS, 2), (POLLS, 2)], 6, budget) }
    } else {
        scope(&[(POLLS, 2), (POLLS, 1)], 4, budget)
    }
}

/// Clients that wait, time out and come back, die between grant and reply, and have reserved places and lose them.
pub fn queue() -> Scope {
    let budget = Budget { crashes: 1, time_outs: 1, places_over: 1, ..NOTHING };
    if is_large() {
        scope(&[(WAITS, 2), (WAITS, 2), (WAITS_UNNAMED, 1)], 3, budget)
    } else {
        scope(&[(WAITS, 1), (WAITS, 2), (WAITS_UNNAMED, 1)], 2, budget)
    }
}

/// Replies that are lost, commands that are resent with their ID, first commands that arrive late, and LOCK.CANCEL.
pub fn resends() -> Scope {
    if is_large() {
        let budget = Budget { resends: 2, late: 1, cancels: 1, clock_back: 1, ..NOTHING };
        scope(&[(WAITS, 2), (WAITS, 2)], 3, budget)
    } else {
        scope(&[(WAITS, 1), (WAITS, 1)], 3, Budget { resends: 2, late: 1, cancels: 1, ..NOTHING })
    }
}

/// An attempt that is cancelled while its grant is on its way, and whose first command arrives afterwards.
pub fn cancels() -> Scope {
    scope(&[(WAITS, 2), (WAITS, 2)], 1, Budget { resends: 1, late: 1, cancels: 1, ..NOTHING })
}

/// Locks that end with the connection, which breaks while its client lives, or dies with it.
pub fn sessions() -> Scope {
    let budget = Budget { breaks: 1, crashes: 1, extends: 1, ..NOTHING };
    if is_large() {
        scope(&[(SESSION, 2), (SESSION, 1)], 5, Budget { resends: 1, ..budget })
    } else {
        scope(&[(SESSION, 1), (WAITS, 1)], 3, Budget { resends: 1, ..budget })
    }
}

/// Clients of the classic pattern on the same key, with clocks that differ by the margin.
pub fn beside_getset() -> Scope {
    let budget = Budget { crashes: 1, clock_ahead: 1, clock_back: 1, ..NOTHING };
    if is_large() {
        scope(&[(WAITS, 2), (WAITS, 1), (Kind::Getset, 2), (Kind::Getset, 1)], 4, budget)
    } else {
        scope(&[(WAITS, 1), (Kind::Getset, 2), (Kind::Getset, 1)], 4, budget)
    }
}

/// Clients that use SET NX PX on the same key, which cannot have a margin.
pub fn beside_set_nx_px() -> Scope {
    let scope = if is_large() {
        scope(&[(WAITS, 2), (WAITS, 1), (Kind::SetNxPx, 2), (Kind::SetNxPx, 1)], 4, Budget { crashes: 1, ..NOTHING })
    } else {
        scope(&[(WAITS, 1), (WAITS_UNNAMED, 1), (Kind::SetNxPx, 2)], 4, Budget { crashes: 1, ..NOTHING })
    };
    Scope { retention: Retention::Ms(0), ..scope }
}

/// Checks all states of a scope, and that each of the facts happened.
fn holds(name: &str, scope: Scope, facts: &[Fact]) {
    let model = Protocol::new(scope);
    check::holds(name, model.clone());
    for fact in facts {
        let count = model.count(*fact);
        assert!(count > 0, "{name}: never seen: {fact:?}");
        println!("- {fact:?}: {count} times");
    }
}

#[test]
fn leases_exclude_other_clients() {
    holds("leases", leases(), &[Fact::TakeOver, Fact::Extended, Fact::StaleRelease]);
}

#[test]
fn a_queue_is_served_in_order() {
    let facts = [Fact::HandOff, Fact::TakeOver, Fact::Undelivered, Fact::PassedOn, Fact::PlaceTaken];
    holds("queue", queue(), &facts);
}

#[test]
fn a_repeated_command_gets_no_second_lock() {
    holds("commands sent again", resends(), &[Fact::ReportedAgain, Fact::LateCommand, Fact::PlaceTaken]);
}

#[test]
fn a_cancelled_attempt_has_no_place_in_the_queue() {
    holds("cancelled", cancels(), &[Fact::HandOff, Fact::LateCommand]);
}

#[test]
fn a_lock_ends_with_its_session_and_not_before_its_holder_knows() {
    holds("sessions", sessions(), &[Fact::SessionEnded, Fact::ReportedAgain]);
}

#[test]
fn clients_of_the_classic_pattern_share_a_key() {
    holds("beside GETSET", beside_getset(), &[Fact::ClassicTakeOver, Fact::TakeOver]);
}

#[test]
fn clients_of_set_nx_px_share_a_key() {
    holds("beside SET NX PX", beside_set_nx_px(), &[Fact::ForeignWait, Fact::HandOff]);
}
