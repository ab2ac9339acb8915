//! Runs in which the simulator found a bug in the module, as short as it could make them.

use super::shrink::{run, Outcome};
use super::steps::{Acquire, Fate, Plan, Share, Step, Time};

/// A request for one key, with a lease of a second.
const ACQUIRE: Acquire = Acquire {
    client: 0,
    keys: Vec::new(),
    share: Share::Alone,
    lease: 1_000,
    wait: 0,
    id: None,
    session: false,
    in_transaction: false,
    notify: None,
    wants_result: false,
};

/// A step in which this many microseconds pass.
const fn pass_us(us: u32) -> Step {
    Step::Pass(Time::Us(us))
}

fn is_fine(plan: Plan, seed: u64, steps: &[Step]) {
    if let Outcome::Found { message, at } = run(plan, seed, steps) {
        panic!("step {at}: {message}");
    }
}

#[test]
fn a_newer_command_of_an_id_ends_its_wait_though_no_place_is_kept() {
    // Seed 10 has a `lock.place-ms` of 0.
    let ask = |client, wait, id| Step::Acquire(Acquire { client, keys: vec![2], wait, id, ..ACQUIRE });
    let steps = [ask(0, 0, None), ask(8, 200, Some(3)), ask(5, 0, Some(3)), Step::Pass(Time::Turn)];
    is_fine(Plan::Rough, 10, &steps);
}

#[test]
fn a_wait_beyond_the_grace_ends_though_the_grace_was_longer_for_a_moment() {
    let waits = Step::Acquire(Acquire { client: 6, keys: vec![1], lease: 500, wait: 2_000, ..ACQUIRE });
    let set = |longer| Step::SetGrace { longer };
    let pass = |ms: u32| Step::Pass(Time::Us(ms * 1_000));
    is_fine(Plan::Calm, 3_978, &[set(false), set(false), pass(48), set(true), waits, set(false), pass(1_703)]);
}

#[test]
fn a_lock_passed_to_a_sharer_outlives_the_old_holders_connection() {
    let takes = Step::AcquireAll(Acquire { client: 5, keys: vec![2, 0], wait: 200, session: true, ..ACQUIRE });
    let shares = Step::Acquire(Acquire { client: 2, keys: vec![0], share: Share::Shared, wait: 2_000, ..ACQUIRE });
    let release = Step::Release { grant: 0, key: 1 };
    // The other lock gets this name, with the same token: a rename ends its session.
    let rename = Step::Rename { from: 2, to: 0 };
    let pass = Step::Pass(Time::Us(395_000));
    is_fine(Plan::Calm, 57_258, &[takes, shares, release, Step::Disconnect { client: 5 }, rename, pass]);
}

#[test]
fn a_grant_ends_although_the_first_waiter_has_another_under_its_id() {
    let shared = Acquire { client: 0, keys: vec![1], share: Share::Shared, lease: 3_000, ..ACQUIRE };
    let with_id = Acquire { id: Some(1), ..shared.clone() };
    let alone = Acquire { client: 2, keys: vec![3], ..ACQUIRE };
    let waits = Acquire { client: 3, keys: vec![3], share: Share::Limit(2), wait: 2_000, id: Some(1), ..ACQUIRE };
    let mut steps = [with_id, Acquire { client: 1, ..shared }, alone, waits].map(Step::Acquire).to_vec();
    // Now the ID that waits for the lock is one of its two holders.
    steps.extend([Step::Copy { from: 1, to: 3 }, Step::Release { grant: 1, key: 15 }, Step::Pass(Time::Turn)]);
    is_fine(Plan::Calm, 0, &steps);
}

#[test]
fn the_waiter_behind_one_that_holds_the_lock_under_its_id_is_tried() {
    let alone = Acquire { client: 3, keys: vec![0], ..ACQUIRE };
    let waits =
        Acquire { client: 1, keys: vec![0], share: Share::Shared, lease: 10, wait: 2_000, id: Some(3), ..ACQUIRE };
    let next = Acquire { client: 2, keys: vec![0], wait: 10_000, ..ACQUIRE };
    let has = Acquire { client: 7, keys: vec![2], share: Share::Limit(1), lease: 500, id: Some(3), ..ACQUIRE };
    let mut steps = [alone, waits, next, has].map(Step::Acquire).to_vec();
    let pass = |ms: u32| Step::Pass(Time::Us(ms * 1_000));
    steps.extend([pass(335), Step::Copy { from: 2, to: 0 }, pass(2_274)]);
    // Seed 109839 has no margin: the copy ends before the lock that was there.
    is_fine(Plan::Calm, 109_839, &steps);
}

#[test]
fn a_master_that_may_have_been_replaced_reports_no_lock_again() {
    let holds = Acquire { client: 1, keys: vec![1], lease: 2_500, id: Some(2), ..ACQUIRE };
    let asks = Step::Acquire(Acquire { lease: 1_000, ..holds.clone() });
    let other = Step::Acquire(Acquire { client: 2, keys: vec![1], ..ACQUIRE });
    let pass = |ms: u32| Step::Pass(Time::Us(ms * 1_000));
    // The old master's clock is set back, so the lock lasts longer there than its holder may count on.
    let back = Step::SetClock { server: 0, by: -5_000 };
    let promote = Step::Promote { replica: 2, fate: Fate::Stopped(2_000) };
    is_fine(Plan::Group, 2, &[pass(7_500), Step::Acquire(holds), back, promote, pass(5_800), asks, pass(300), other]);
}

#[test]
fn an_id_with_two_grants_in_a_set_holds_the_lock_with_the_live_one() {
    let holds = Acquire { client: 1, keys: vec![1], share: Share::Shared, lease: 100, id: Some(2), ..ACQUIRE };
    let [first, second] = [holds.clone(), Acquire { lease: 500, ..holds.clone() }].map(Step::Acquire);
    let other = Step::Acquire(Acquire { client: 2, id: None, lease: 3_000, ..holds });
    let pass = |ms: u32| Step::Pass(Time::Us(ms * 1_000));
    // The clock is set back, and the first grant is live again; its holder extends it.
    let back = Step::SetClock { server: 0, by: -700 };
    let extend = Step::Extend { grant: 2, lease: 3_000 };
    let cancel = Step::Cancel { key: 1, id: 2 };
    let now_the_first = [first, other, pass(200), second, back, extend, pass(1_500)];
    for own in
        [Step::Acquire(Acquire { client: 3, share: Share::Shared, keys: vec![1], id: Some(2), ..ACQUIRE }), cancel]
    {
        // Seed 4 has no margin, and keeps expired holders.
        is_fine(Plan::Rough, 4, &[&now_the_first[..], &[own]].concat());
    }
}

#[test]
fn cancel_ends_a_grant_that_replaced_the_unclaimed_one_of_its_id() {
    let holds = Step::AcquireAll(Acquire { client: 4, keys: vec![0, 1, 2], lease: 100, ..ACQUIRE });
    let notified = Acquire { client: 1, keys: vec![0], share: Share::Shared, wait: 2_000, id: Some(3), ..ACQUIRE };
    let notified = Step::Acquire(Acquire { notify: Some(0), ..notified });
    let other = Step::Acquire(Acquire { client: 9, keys: vec![2], share: Share::Limit(3), id: Some(3), ..ACQUIRE });
    let steps =
        [holds, notified, pass_us(1_401_000), other, Step::Rename { from: 2, to: 0 }, Step::Cancel { key: 0, id: 3 }];
    is_fine(Plan::Rough, 777_000_002_914, &steps);
}

#[test]
fn no_lease_beyond_the_grace_is_granted_behind_a_dead_attempt() {
    let notified = |client, keys: &[u8], lease, wait, id, channel| {
        let notify = Some(channel);
        Acquire { client, keys: keys.to_vec(), lease, wait, id: Some(id), notify, ..ACQUIRE }
    };
    let session = |command: Acquire| Acquire { session: true, ..command };
    let ask = |client, key, lease, wait| Acquire { client, keys: vec![key], lease, wait, ..ACQUIRE };
    let pass = |ms: u32| pass_us(ms * 1_000);
    let steps = [
        Step::Acquire(session(notified(2, &[3], 1_000, 1_000, 0, 2))),
        Step::Subscribe { channel: 0, is_there: false },
        Step::Acquire(Acquire { share: Share::Limit(1), ..session(notified(2, &[0], 10, 2_000, 2, 0)) }),
        pass(379),
        Step::Acquire(notified(7, &[3], 50, 20, 0, 2)),
        pass(1_968),
        Step::Again { command: 2, client: 6 },
        Step::SetGrace { longer: false },
        pass(1_774),
        Step::Acquire(notified(8, &[2], 500, 2_000, 1, 0)),
        Step::AcquireAll(notified(4, &[1, 2, 0], 1_000, 10_000, 1, 1)),
        Step::Acquire(Acquire { share: Share::Limit(2), ..ask(1, 3, 100, 0) }),
        Step::Acquire(Acquire { share: Share::Limit(1), id: Some(1), ..ask(4, 0, 10, 200) }),
        Step::Acquire(Acquire { id: Some(3), in_transaction: true, ..ask(1, 1, 500, 0) }),
        Step::Acquire(Acquire { share: Share::Shared, ..notified(6, &[2], 50, 10_000, 3, 0) }),
        Step::Again { command: 6, client: 5 },
        pass(391),
        Step::Acquire(ask(7, 2, 1_000, 200)),
        Step::SetGrace { longer: false },
        Step::ReleaseAll { grant: 4, more: Some(1) },
    ];
    is_fine(Plan::Calm, 419_948_675_646, &steps);
}

#[test]
fn an_extended_undelivered_grant_need_not_be_passed_on() {
    let ask = |client, keys: &[u8], lease| Acquire { client, keys: keys.to_vec(), lease, wait: 0, ..ACQUIRE };
    let steps = [
        pass_us(1_989_000),
        Step::AcquireAll(Acquire { id: Some(4), ..ask(6, &[0, 2], 500) }),
        Step::AcquireAll(Acquire { id: Some(2), session: true, wait: 20, ..ask(0, &[0], 10) }),
        Step::Acquire(Acquire { share: Share::Shared, id: Some(1), ..ask(6, &[3], 1_000) }),
        Step::Release { grant: 1, key: 2 },
        Step::Lose,
        Step::Extend { grant: 0, lease: 500 },
        Step::Pass(Time::Turn),
        Step::Pass(Time::Turn),
        Step::ExtendAll { grant: 0, more: None, lease: 10 },
        pass_us(28_000),
    ];
    is_fine(Plan::Calm, 256_504_619_571, &steps);
}
