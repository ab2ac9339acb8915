//! The scopes in which the protocol is checked, and the mutants that show that each check can fail.

use crate::check;
use crate::clients::Kind;
use crate::protocol::{Budget, Fact, Protocol, Scope};
use crate::server::Mutant;
use redis_lock::lock::rules::Retention;

const POLLS: Kind = Kind::Lock { waits: false, has_ids: true, session: false };
const WAITS: Kind = Kind::Lock { waits: true, has_ids: true, session: false };
const WAITS_UNNAMED: Kind = Kind::Lock { waits: true, has_ids: false, session: false };
const SESSION: Kind = Kind::Lock { waits: true, has_ids: true, session: true };

/// A lease of one second, a margin of one.
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

fn leases() -> Scope {
    let budget = Budget { extends: 1, crashes: 1, clock_ahead: 1, ..Budget::default() };
    scope(&[(POLLS, 2), (POLLS, 1)], 4, budget)
}

fn queue() -> Scope {
    let budget = Budget { crashes: 1, time_outs: 1, places_over: 1, ..Budget::default() };
    scope(&[(WAITS, 1), (WAITS, 2), (WAITS_UNNAMED, 1)], 2, budget)
}

fn resends() -> Scope {
    let budget = Budget { resends: 1, late: 1, cancels: 1, clock_back: 1, ..Budget::default() };
    scope(&[(WAITS, 2), (WAITS, 1)], 3, budget)
}

fn sessions() -> Scope {
    let budget = Budget { breaks: 1, crashes: 1, resends: 1, extends: 1, ..Budget::default() };
    scope(&[(SESSION, 1), (WAITS, 1)], 4, budget)
}

fn beside_getset() -> Scope {
    let budget = Budget { crashes: 1, clock_ahead: 1, clock_back: 1, ..Budget::default() };
    scope(&[(WAITS, 1), (Kind::Getset, 2), (Kind::Getset, 1)], 4, budget)
}

fn beside_set_nx_px() -> Scope {
    let budget = Budget { crashes: 1, ..Budget::default() };
    Scope { retention: Retention::Ms(0), ..scope(&[(WAITS, 2), (Kind::SetNxPx, 2), (WAITS_UNNAMED, 1)], 4, budget) }
}

fn holds(name: &str, scope: Scope, facts: &[Fact]) {
    let model = Protocol::new(scope);
    check::holds(name, model.clone());
    for fact in facts {
        let count = model.count(*fact);
        assert!(count > 0, "{name}: never seen: {fact:?}");
        println!("  {fact:?}: {count}");
    }
}

#[test]
fn leases_exclude() {
    holds("leases", leases(), &[Fact::TakeOver, Fact::Extended, Fact::StaleRelease]);
}

#[test]
fn queue_holds() { holds("queue", queue(), &[Fact::HandOff, Fact::Undelivered, Fact::PassedOn, Fact::PlaceTaken]); }
#[test]
fn resends_holds() { holds("resends", resends(), &[Fact::ToldAgain, Fact::LateCall]); }
#[test]
fn sessions_holds() { holds("sessions", sessions(), &[Fact::SessionEnded]); }
#[test]
fn getset_holds() { holds("getset", beside_getset(), &[Fact::ClassicTakeOver]); }
#[test]
fn px_holds() { holds("px", beside_set_nx_px(), &[Fact::ForeignWait]); }
