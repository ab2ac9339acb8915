//! A run: servers, clients, faults, and the judgement.

use super::clients::classic::Pattern;
use super::clients::{classic, inspector, locks, plain, several, Client, Habits, Log};
use super::faults;
use super::history::{Company, Inspection, KeyHistory, Op, Terms};
use super::plan::{Plan, Setup, Track};
use super::record;
use super::report::{judge, text, Report};
use super::site::group::LEASE_UNDER_GRACE_MS;
use super::site::{assert_work_goes_on, Site};
use super::small::Budget;
use super::world::{StopOnPanic, World};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use testkit::{env_number, watch, SetAtEnd};

/// After this time, a command without a reply is either executed or lost: more than the longest stall of a plan.
const LONGEST_STALL: i64 = 11_000_000;

/// Runs a plan on servers of its own, and judges it.
pub fn run(plan: &Plan) -> Report {
    println!("{}", plan.title());
    run_on(plan, &Site::start(plan.setup))
}

/// Runs a plan on these servers, and judges it.
pub fn run_on(plan: &Plan, site: &Site) -> Report {
    let world = World::new(site.client_ports(), plan.setup.has_module());
    let logs = work(plan, site, &world);
    assert!(world.watch.was_set_by().abs() < 1_000, "the clock of this machine was set: nothing can be judged");
    assert_sound(plan, site);
    let margin = i64::try_from(plan.setup.margin_ms() * 1_000).unwrap();
    let terms = Terms {
        margin: (margin, margin),
        // A fault changes the retention.
        retention: None,
        has_grace: plan.setup.has_grace(),
        is_script: !plan.setup.has_module(),
        longest_stall: LONGEST_STALL,
        overtime: world.overtime(),
        events: world.events(),
    };
    let histories = histories(logs);
    if let Some(folder) = std::env::var_os("TORTURE_HISTORIES").filter(|folder| !folder.is_empty()) {
        record::write(Path::new(&folder), plan, &histories, &terms, &world.clock());
    }
    let mut report = judge(plan, &histories, &terms, &world.clock());
    report.faults = world.faults();
    report.claims = world.claims.load(Ordering::Relaxed);
    report
}

fn assert_sound(plan: &Plan, site: &Site) {
    let troubles = site.troubles();
    assert!(troubles.is_empty(), "{}, seed {}: {troubles:?}", plan.setup.name(), plan.seed);
}

/// Clients work during the faults of the plan. Returns each client's log.
fn work(plan: &Plan, site: &Site, world: &World) -> Vec<Log> {
    let budget = Budget::default();
    thread::scope(|scope| {
        let _guards = [&world.stop, &world.is_quiet].map(SetAtEnd);
        scope.spawn(|| world.watch_itself());
        for index in 0..site.ports().len() {
            scope.spawn(move || world.watch_server(|| site.ports()[index]));
        }
        let worker = |(number, role): (usize, Role)| {
            let budget = &budget;
            scope.spawn(move || {
                let _stop = StopOnPanic(world);
                let mut client = Client::new(world, u32::try_from(number).unwrap() + 1, plan.seed);
                role(&mut client, budget);
                client.log
            })
        };
        let workers: Vec<_> = crew(plan).into_iter().enumerate().map(worker).collect();
        let tracks = [Track::Servers, Track::Rest].map(|track| {
            scope.spawn(move || {
                let _stop = StopOnPanic(world);
                faults::carry_out(world, site, plan, track);
            })
        });
        for track in tracks {
            track.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        let left = i64::try_from(plan.for_ms * 1_000).unwrap() - world.now();
        world.sleep(Duration::from_micros(u64::try_from(left).unwrap_or(0)));
        if !world.is_over() {
            // Without this, a crashed server would only appear not to answer.
            assert_sound(plan, site);
            site.wait_until_healthy();
            assert_work_goes_on(world, &keys(plan.setup));
        }
        world.stop();
        let log = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(log).collect()
    })
}

/// The history of each key.
pub fn histories(logs: Vec<Log>) -> Vec<KeyHistory> {
    let mut keys: BTreeMap<String, (Vec<Op>, Vec<Inspection>)> = BTreeMap::new();
    for log in logs {
        for (key, op) in log.ops {
            keys.entry(key).or_default().0.push(op);
        }
        for (key, inspection) in log.inspections {
            keys.entry(key).or_default().1.push(inspection);
        }
    }
    let company = |key: &str| match key.split(':').next() {
        Some("small") => Company::Small,
        Some("lock") => Company::Alone,
        _ => Company::Mixed,
    };
    let history = |(key, (ops, inspections)): (String, _)| KeyHistory { company: company(&key), key, ops, inspections };
    keys.into_iter().map(history).collect()
}

/// The keys that are used throughout the run.
fn keys(setup: Setup) -> Vec<String> {
    let keys: &[&str] = match setup {
        Setup::Cluster => &["lock:a", "lock:b", "lock:c"],
        Setup::Pair | Setup::Bare => &["lock:a", "lock:b"],
        _ => &["lock:a", "lock:b", "classic", "plain", "all"],
    };
    let several = if setup.is_single() { &BESIDE_OTHERS[..] } else { &[] };
    [keys, &SEVERAL, several].concat().iter().map(ToString::to_string).collect()
}

/// Keys of one slot, which are locked exclusively, shared and together.
const SEVERAL: [&str; 4] = ["lock:{several}:a", "lock:{several}:b", "lock:{several}:c", "lock:{several}:d"];
/// One of them, and two keys that clients without LOCK.* use too.
const BESIDE_OTHERS: [&str; 3] = ["lock:{several}:a", "mixed:{several}:e", "mixed:{several}:f"];

/// What a client does, over and over.
type Role = Box<dyn Fn(&mut Client<'_>, &Budget) + Send>;

/// LOCK.* on a key.
fn locks(key: &'static str, lease_ms: (u64, u64), sessions: bool) -> Role {
    let habits = Habits { lease_ms, hold_ms: 25, think_ms: 25, sessions };
    Box::new(move |client, _| locks::work(client, habits, &|| Some(key.to_string())))
}

/// LOCK.* on keys for small histories.
fn small(group: u32) -> Role {
    let habits = Habits { lease_ms: (20, 300), hold_ms: 30, think_ms: 60, sessions: false };
    Box::new(move |client, budget| {
        let world = client.world;
        locks::work(client, habits, &|| budget.next_key(world, group));
    })
}

/// LOCK.* on several keys, and on keys with several holders.
fn several(keys: &'static [&'static str], lease_ms: (u64, u64), sessions: bool) -> Role {
    let habits = Habits { lease_ms, hold_ms: 25, think_ms: 20, sessions };
    Box::new(move |client, _| several::work(client, habits, keys))
}

/// Inspects the queues of keys.
fn inspector(keys: &'static [&'static str]) -> Role {
    Box::new(move |client, _| inspector::work(client, keys))
}

/// The clients of a run.
fn crew(plan: &Plan) -> Vec<Role> {
    let margin_ms = plan.setup.margin_ms();
    // With a grace there are leases up to the longest that it covers.
    let long = if plan.setup.has_grace() { LEASE_UNDER_GRACE_MS } else { 700 };
    let mut crew: Vec<Role> = (0..3).flat_map(|_| [small(0), small(1)]).collect();
    let (keys, longest): (&[_], &[u64]) = match plan.setup {
        Setup::Cluster => (&["lock:a", "lock:b", "lock:c"], &[400, long]),
        Setup::Pair | Setup::Bare => (&["lock:a", "lock:b"], &[400, long, long]),
        _ => (&["lock:a", "lock:b"], &[300, long, 300]),
    };
    crew.extend(keys.iter().flat_map(|key| longest.iter().map(|most| locks(key, (50, *most), true))));
    if plan.setup.is_single() {
        // All clients that share a key with classic clients have the same lease.
        let lease_ms = 300;
        let shared = |key| locks(key, (lease_ms, lease_ms), false);
        let classic = |key| -> Role {
            let pattern = Pattern { lease_ms, margin_ms, is_wrong: false };
            Box::new(move |client, _| classic::work(client, key, pattern))
        };
        let plain = |key| -> Role { Box::new(move |client, _| plain::work(client, key, lease_ms)) };
        crew.extend([shared("classic"), shared("classic"), classic("classic"), classic("classic")]);
        crew.extend([shared("plain"), shared("plain"), plain("plain"), plain("plain")]);
        crew.extend([shared("all"), classic("all"), plain("all")]);
        let [_, one, other] = BESIDE_OTHERS;
        crew.extend((0..3).map(|_| several(&BESIDE_OTHERS, (lease_ms, lease_ms), false)));
        crew.extend([classic(one), plain(other), inspector(&BESIDE_OTHERS)]);
    }
    if plan.setup != Setup::Bare {
        crew.extend([400, long, 400, long, 400, 300].map(|most| several(&SEVERAL, (50, most), true)));
        crew.push(inspector(&SEVERAL));
    }
    crew
}

/// A run of this many seconds tries all setups.
const LONG: u64 = 60;

/// Runs setups in parallel; fails if any promise was broken.
fn run_all(setups: &[Setup], seed: u64, seconds: u64) {
    // Built once, before all setups need it.
    testkit::module();
    watch::allow(Duration::from_secs(2 * seconds + 180));
    let plans: Vec<Plan> = setups.iter().map(|setup| Plan::of(*setup, seed, seconds * 1_000)).collect();
    let reports: Vec<Report> = thread::scope(|scope| {
        let runs: Vec<_> = plans.iter().map(|plan| scope.spawn(|| run(plan))).collect();
        runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    println!("{}", text(&reports));
    let violations: usize = reports.iter().map(|report| report.violations.len()).sum();
    if violations > 0 {
        for plan in &plans {
            println!("{plan}");
        }
    }
    assert!(violations == 0, "{violations} violations with seed {seed}, see the table and the pieces of history");
    for report in &reports {
        assert!(report.grants > 20 && !report.faults.is_empty(), "nothing was tried in {}", report.setup);
    }
    // Before 7.0 no attempt can wait without a connection.
    if testkit::Server::start().conn().version() >= (false, 7, 0) {
        let claims: usize = reports.iter().map(|report| report.claims).sum();
        assert!(claims > 0, "nobody waited without a connection");
    }
}

#[test]
fn the_promises_hold_under_faults() {
    let seed = env_number("TORTURE_SEED").unwrap_or(1);
    let seconds = env_number("TORTURE_SECONDS").unwrap_or(12);
    let named = std::env::var("TORTURE_SETUPS").unwrap_or_default();
    let mut setups: Vec<Setup> =
        Setup::ALL.into_iter().filter(|setup| named.split(',').any(|name| name == setup.name())).collect();
    if setups.is_empty() {
        setups = Setup::ALL.to_vec();
        if seconds < LONG {
            // One of the three setups with a single server, in turn.
            let single = Setup::ALL[usize::try_from(seed % 3).unwrap()];
            setups.retain(|setup| *setup == single || matches!(setup, Setup::Pair | Setup::Cluster | Setup::Script));
        }
    }
    run_all(&setups, seed, seconds);
}
