//! Shows that the checks can fail: the server is a mutant, and the checker finds the path to the effect.
//! `scripts/mutants.sh` shows that the scopes find mutants of the module itself.

use crate::check;
use crate::fake::Mutant;
use crate::protocol::{Budget, Protocol, Scope, EXCLUSION, GRANTS, SERVED, WAKE_UP};
use crate::scopes::{beside_getset, leases, queue, resends};
use redis_lock_core::lock::retention::Retention;

fn finds(scope: Scope, mutant: Mutant, property: &'static str) {
    check::fails(&format!("{mutant:?}"), property, &Protocol::new(Scope { mutant, ..scope }));
}

/// Finds a violation of exclusion in a scope that breaks no rule, only a condition that docs/SEMANTICS.md states.
fn finds_without(condition: &str, scope: Scope) {
    check::fails(&format!("without {condition}"), EXCLUSION, &Protocol::new(scope));
}

#[test]
fn a_lock_that_is_taken_over_too_early_is_held_twice() {
    finds(leases(), Mutant::TakesOverEarly, EXCLUSION);
}

#[test]
fn without_the_margin_a_clock_that_runs_ahead_gives_the_lock_to_two() {
    finds(leases(), Mutant::NoMargin, EXCLUSION);
}

#[test]
fn the_margin_does_not_cover_a_clock_that_is_set_further() {
    let scope = leases();
    let budget = Budget { clock_ahead: scope.margin + 1, ..scope.budget };
    finds_without("a server's clock within the margin", Scope { budget, ..scope });
}

#[test]
fn a_classic_client_whose_clock_exceeds_the_margin_takes_a_held_lock() {
    let scope = beside_getset();
    // One second more is not enough, because for a client that parses a float, the token makes the timestamp slightly
    // later.
    let budget = Budget { clock_back: scope.margin + 2, ..scope.budget };
    finds_without("clocks of classic clients within the margin", Scope { budget, ..scope });
}

#[test]
fn a_grant_without_inspecting_the_key_again_is_a_second_one() {
    finds(queue(), Mutant::GrantsWithoutInspecting, GRANTS);
}

#[test]
fn a_waiter_whose_place_is_not_kept_is_overtaken() {
    finds(queue(), Mutant::ForgetsPlaces, GRANTS);
}

#[test]
fn without_due_times_a_waiter_for_an_expired_lock_waits_in_vain() {
    finds(queue(), Mutant::ForgetsDueTimes, WAKE_UP);
    // Otherwise the native expiry would wake it later.
    finds(Scope { retention: Retention::Forever, ..resends() }, Mutant::ForgetsDueTimes, SERVED);
}

#[test]
fn without_ids_a_repeated_command_is_refused_its_own_lock() {
    finds(resends(), Mutant::IgnoresIds, GRANTS);
}
