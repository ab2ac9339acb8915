//! Each check can fail: one rule is broken, and the checker finds the way to what it was for.

use crate::check;
use crate::protocol::{Budget, Protocol, Scope, EXCLUSION, GRANTS, LOST, SERVED, WAKE_UP};
use crate::scopes::{beside_getset, leases, queue, resends, sessions};
use crate::server::Mutant;
use redis_lock::lock::rules::Retention;

fn finds(scope: Scope, mutant: Mutant, property: &'static str) {
    check::fails(&format!("{mutant:?}"), property, &Protocol::new(Scope { mutant, ..scope }));
}

/// No rule is broken, but a condition that the README states.
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
fn a_classic_client_whose_clock_is_further_off_takes_a_lock_that_is_held() {
    let scope = beside_getset();
    // Not one second more: to a client that reads a float, the token makes the timestamp a trifle later.
    let budget = Budget { clock_back: scope.margin + 2, ..scope.budget };
    finds_without("clocks of classic clients within the margin", Scope { budget, ..scope });
}

#[test]
fn a_release_that_does_not_compare_takes_the_lock_of_another() {
    finds(leases(), Mutant::ReleasesWithoutComparing, EXCLUSION);
}

#[test]
fn tokens_that_are_only_the_time_do_not_grow() {
    finds(leases(), Mutant::TokensByClock, GRANTS);
}

#[test]
fn a_grant_without_a_new_look_at_the_key_is_a_second_one() {
    finds(queue(), Mutant::GrantsWithoutLooking, GRANTS);
}

#[test]
fn a_newcomer_that_is_let_in_overtakes() {
    finds(queue(), Mutant::LetsOvertake, GRANTS);
}

#[test]
fn a_place_that_is_not_kept_is_overtaken() {
    finds(queue(), Mutant::ForgetsPlaces, GRANTS);
}

#[test]
fn a_release_that_wakes_nobody_leaves_somebody_waiting() {
    finds(queue(), Mutant::WakesNobody, WAKE_UP);
}

#[test]
fn without_due_times_an_expired_lock_is_waited_for_in_vain() {
    finds(queue(), Mutant::ForgetsDueTimes, WAKE_UP);
    // Else the native expiry would wake it, later.
    finds(Scope { retention: Retention::Forever, ..queue() }, Mutant::ForgetsDueTimes, SERVED);
}

#[test]
fn a_grant_that_nobody_received_must_pass_on() {
    finds(queue(), Mutant::ForgetsLostGrants, LOST);
}

#[test]
fn a_grant_that_was_told_again_must_not_pass_on() {
    finds(resends(), Mutant::PassesOnWhatWasToldAgain, EXCLUSION);
}

#[test]
fn an_attempt_that_was_cancelled_has_no_place_in_line() {
    // The shortest way to it is too long for small bounds.
    if check::is_large() {
        finds(resends(), Mutant::RestoresCancelledPlaces, GRANTS);
    }
}

#[test]
fn without_ids_a_call_that_is_sent_again_is_refused_its_own_lock() {
    finds(resends(), Mutant::IgnoresIds, GRANTS);
}

#[test]
fn a_session_that_ends_without_a_margin_leaves_its_holder_no_time_to_notice() {
    finds(sessions(), Mutant::EndsSessionsAtOnce, EXCLUSION);
}
