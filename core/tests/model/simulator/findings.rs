//! Runs in which the simulator found a fault of the module, as short as it made them.

use super::shrink::{run, Outcome};
use super::steps::{Call, Plan, Share, Step, Time};

/// A call for one key, a second's lease.
const CALL: Call = Call {
    client: 0,
    keys: Vec::new(),
    share: Share::Alone,
    lease: 1_000,
    wait: 0,
    id: None,
    session: false,
    in_transaction: false,
};

fn is_fine(plan: Plan, seed: u64, steps: &[Step]) {
    if let Outcome::Found { message, at } = run(plan, seed, steps) {
        panic!("step {at}: {message}");
    }
}

#[test]
fn a_newer_call_of_an_id_ends_its_wait_though_no_place_is_kept() {
    // Seed 10 has a `lock.place-ms` of 0.
    let ask = |client, wait, id| Step::Acquire(Call { client, keys: vec![2], wait, id, ..CALL });
    let steps = [ask(0, 0, None), ask(8, 200, Some(3)), ask(5, 0, Some(3)), Step::Pass(Time::Turn)];
    is_fine(Plan::Rough, 10, &steps);
}

#[test]
fn a_wait_for_a_lease_beyond_the_grace_ends_though_the_grace_was_longer_for_a_moment() {
    let waits = Step::Acquire(Call { client: 6, keys: vec![1], lease: 500, wait: 2_000, ..CALL });
    let set = |longer| Step::SetGrace { longer };
    let pass = |ms: u32| Step::Pass(Time::Us(ms * 1_000));
    is_fine(Plan::Calm, 3_978, &[set(false), set(false), pass(48), set(true), waits, set(false), pass(1_703)]);
}
