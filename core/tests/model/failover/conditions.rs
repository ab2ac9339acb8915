//! Failover under all conditions that docs/SEMANTICS.md states, and without each of them.

use super::{Condition, Failover, EXCLUSION, FIRST_S, GRACE_S, LEASE_S};
use crate::check::{self, is_large};

const FULL: Condition = Condition {
    grace_s: [GRACE_S; 2],
    grace_set_at: 0,
    replicas: 1,
    min_replicas: 1,
    notices_stalls: true,
    notices_clock: true,
    only_new_answers: true,
    stalls: 1,
    clock_steps: 0,
    // This is longer than the whole run.
    clock_step_s: 30,
    slow_turns: false,
    long_turns: false,
    early_lease_s: LEASE_S,
    end: GRACE_S + 2,
};

fn finds(what: &str, condition: Condition) {
    check::fails(what, EXCLUSION, &Failover { is: condition });
}

#[test]
fn with_the_whole_condition_a_failover_gives_the_lock_to_one() {
    let (stalls, end) = if is_large() { (3, GRACE_S + 5) } else { (1, FULL.end) };
    check::holds("failover with a grace", Failover { is: Condition { stalls, end, ..FULL } });
}

#[test]
fn with_two_replicas_and_both_wanted_a_failover_gives_the_lock_to_one() {
    let stalls = u8::from(is_large());
    check::holds(
        "failover with a grace, two replicas",
        Failover { is: Condition { replicas: 2, min_replicas: 2, stalls, ..FULL } },
    );
}

#[test]
fn with_a_clock_that_is_set_back_a_failover_gives_the_lock_to_one() {
    for clock_step_s in [6, FULL.clock_step_s] {
        let condition = Condition { clock_steps: 1, clock_step_s, stalls: 0, ..FULL };
        check::holds("failover with a grace, clock set back", Failover { is: condition });
    }
}

#[test]
fn without_a_grace_a_failover_gives_the_lock_to_two() {
    finds("no grace", Condition { grace_s: [0; 2], ..FULL });
}

#[test]
fn a_shorter_grace_on_the_replica_lets_a_failover_grant_twice() {
    finds("a shorter grace on the replica", Condition { grace_s: [GRACE_S + 3, GRACE_S], ..FULL });
}

#[test]
fn a_grace_set_after_a_long_lease_lets_a_failover_grant_twice() {
    finds("a grace that came too late", Condition { grace_set_at: FIRST_S + 1, early_lease_s: GRACE_S + 3, ..FULL });
}

#[test]
fn a_replica_that_need_not_answer_lets_a_failover_grant_twice() {
    finds("one of two replicas wanted", Condition { replicas: 2, min_replicas: 1, stalls: 0, ..FULL });
}

#[test]
fn an_unnoticed_stall_of_the_master_lets_a_failover_grant_twice() {
    finds("stalls not noticed", Condition { notices_stalls: false, ..FULL });
}

#[test]
fn answers_from_before_a_stall_must_not_count() {
    finds("old answers count", Condition { only_new_answers: false, ..FULL });
}

#[test]
fn an_unnoticed_clock_step_of_the_master_lets_a_failover_grant_twice() {
    finds(
        "clock steps not noticed",
        Condition { clock_steps: 1, clock_step_s: 6, notices_clock: false, stalls: 0, ..FULL },
    );
}

/// One turn of the loop is long because it stalls several times, each time no longer than a turn may take, with lock
/// commands in between.
const SLOW_TURNS: Condition = Condition { slow_turns: true, stalls: 2, ..FULL };

#[test]
fn a_turn_that_stalls_several_times_gives_the_lock_to_one() {
    let stalls = if is_large() { 3 } else { 1 };
    check::holds("slow turns", Failover { is: Condition { stalls, ..SLOW_TURNS } });
    if is_large() {
        finds("turns as long as the margin", Condition { long_turns: true, ..SLOW_TURNS });
    }
}
