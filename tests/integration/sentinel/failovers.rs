//! Many failovers of all kinds under load: with the grace no two clients hold a lock at once.
//!
//! `LOCK_FAILOVERS` sets their number, 2 by default, all kinds in turn; `LOCK_SEED` repeats the order of an earlier
//! run. The results are printed: `LOCK_FAILOVERS=50 cargo test --test integration sentinel::failovers -- --nocapture`.

use super::holders::{double_holders, Client, Hold, Record};
use std::fmt::Write as _;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use testkit::dice::Dice;
use testkit::sentinel::{until_long, Group, Plan};
use testkit::{env_number, watch, SetAtEnd};

const CLIENTS: usize = 10;

/// How a master is replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// SENTINEL FAILOVER: the master keeps running, and is the last to learn of its demotion.
    Asked,
    /// The master is killed, and returns empty.
    Killed,
    /// The master stalls, and continues after it has been replaced.
    Stopped,
    /// Only clients on its side of the partition reach the master; later it returns.
    CutOff,
}

const KINDS: [Kind; 4] = [Kind::Asked, Kind::Killed, Kind::Stopped, Kind::CutOff];

/// Replaces the master, and waits until its successor has all replicas.
pub fn fail_over(group: &Group, kind: Kind, dice: &mut Dice) {
    let old = until_long("all agree on a master", || group.master());
    let away = Duration::from_millis(dice.below(4_000));
    match kind {
        Kind::Asked => {
            group.ask_for_failover();
            group.until_replaced(old);
        }
        Kind::Killed => {
            let pid = group.pid(old);
            group.signal(old, "KILL");
            until_long("it is started again", || (group.pid(old) != pid).then_some(()));
        }
        Kind::Stopped => {
            group.signal(old, "STOP");
            group.until_replaced(old);
            sleep(away);
            group.signal(old, "CONT");
        }
        Kind::CutOff => {
            group.fronts[old].cut();
            group.until_replaced(old);
            sleep(away);
            group.fronts[old].heal();
        }
    }
    group.wait_until_complete();
}

/// Runs clients on a group while its masters are replaced. Returns their holds.
fn run(group: &Group, plan: Plan, kinds: impl Iterator<Item = Kind>, seed: u64) -> Record {
    let mut dice = Dice::new(seed);
    under_load(group, plan, seed, |record| {
        for kind in kinds {
            fail_over(group, kind, &mut dice);
            record.count(&format!("failovers {kind:?}"));
            until_granting(record);
        }
    })
}

/// Waits until locks are granted.
fn until_granting(record: &Record) {
    let before = record.grants();
    until_long("locks are granted", || (record.grants() >= before + 4).then_some(()));
}

/// Runs clients on a group during an action. Returns their holds.
pub fn under_load(group: &Group, plan: Plan, seed: u64, act: impl FnOnce(&Record)) -> Record {
    let record = Record::default();
    thread::scope(|scope| {
        let _stop = SetAtEnd(&record.stop);
        for number in 0..CLIENTS {
            let dice = Dice::new(seed + 1 + number as u64);
            let client = Client { number, group, lease_ms: plan.lease_ms, record: &record, dice };
            scope.spawn(move || client.run());
        }
        until_granting(&record);
        act(&record);
        until_granting(&record);
    });
    record
}

/// The pairs of overlapping holds of one lock in a run, and a line about the run.
pub fn judged(record: &Record, begin: Instant, seed: u64) -> (Vec<(Hold, Hold)>, String) {
    let found = double_holders(&record.holds.lock().unwrap());
    let mut line = format!("{record}, {} double holders, {:.0?}, LOCK_SEED={seed}", found.len(), begin.elapsed());
    for (first, second) in found.iter().take(5) {
        let _ = write!(line, "\n  {first:?}\n  {second:?}: {} us before the end of the first", first.to - second.from);
    }
    println!("{line}");
    (found, line)
}

#[test]
fn an_unsafe_failover_can_give_a_lock_to_two() {
    let (begin, seed) = (Instant::now(), env_number("LOCK_SEED").unwrap_or(1));
    let group = Group::start(Plan::UNSAFE);
    let record = under_load(&group, Plan::UNSAFE, seed, |record| {
        let old = until_long("all agree on a master", || group.master());
        group.fronts[old].cut();
        group.until_replaced(old);
        let mut conn = group.try_conn(old).expect("the old master accepts connections from its side");
        let dice = Dice::new(seed + 1 + CLIENTS as u64);
        let mut on_its_side = Client { number: CLIENTS, group: &group, lease_ms: Plan::UNSAFE.lease_ms, record, dice };
        until_long("a double holder is recorded", || {
            if on_its_side.hold_once(old, &mut conn).is_none() {
                // A late reply would be mistaken for the next command's.
                conn = group.try_conn(old)?;
            }
            (!double_holders(&record.holds.lock().unwrap()).is_empty()).then_some(())
        });
        group.fronts[old].heal();
        group.wait_until_complete();
    });
    let (found, line) = judged(&record, begin, seed);
    assert!(!found.is_empty(), "no double holder was recorded: {line}");
}

#[test]
fn no_failover_of_any_kind_gives_a_lock_to_two() {
    let count = usize::try_from(env_number("LOCK_FAILOVERS").unwrap_or(2)).unwrap();
    watch::allow(Duration::from_secs(60 * count as u64));
    let seed = env_number("LOCK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let begin = Instant::now();
    let group = Group::start(Plan::SAFE);
    let mut dice = Dice::new(seed ^ 0xF00D);
    // Each kind equally often, in an order that depends on the seed.
    let mut order = Vec::new();
    while order.len() < count {
        let mut left = KINDS.to_vec();
        while !left.is_empty() {
            order.push(left.remove(dice.index(left.len())));
        }
    }
    order.truncate(count);
    let record = run(&group, Plan::SAFE, order.into_iter(), seed);
    let (found, line) = judged(&record, begin, seed);
    assert!(found.is_empty(), "{line}");
}
