//! Replication sinks come and go while clients write locks: replicas of each kind, the AOF, a failover. Without an AOF
//! or replica the module replicates nothing. After each round a replica and a server that has loaded the AOF hold
//! exactly what the master holds, and no LOCK.* command has reached them.
//!
//! `TORTURE_ROUNDS=60 TORTURE_SEED=1 cargo test --test torture sinks:: -- --nocapture`. By default, as part of `make
//! test`, each way is taken once.

mod content;
mod load;
mod way;

use content::{assert_same, reloaded, until_aof_is_complete, Content};
use load::Load;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};
use testkit::dice::Dice;
use testkit::{env_number, skipped, until, watch, Conn, Options, Server, SetAtEnd};
use way::{set, Scene, Way};

/// The number of concurrent clients.
const CLIENTS: u64 = 2;
/// A round that takes longer is considered to hang.
const ROUND: Duration = Duration::from_secs(60);

/// A server for this run. Nothing expires natively during the comparison.
fn server(args: &[&str]) -> Options {
    let always = ["--repl-backlog-ttl", "1", "--appendfsync", "always", "--repl-diskless-load", "disabled"];
    Server::with().args(&always).args(args).module_args(&["margin-ms", "0", "retention-ms", "3600000"])
}

/// The number of writes that were not replicated.
fn unreplicated(conn: &mut Conn) -> u64 {
    conn.info("lock", "lock_unreplicated_writes").unwrap().parse().unwrap()
}

/// The counts of a round.
#[derive(Default)]
struct Tally {
    rounds: u64,
    /// Writes that were not replicated.
    unreplicated: u64,
    /// Unreplicated writes since the new sink began to attach; a replica that has yet to start gets none.
    late: u64,
    /// Keys that were compared.
    keys: usize,
}

/// A function with which clients take locks.
const FUNCTION: &str = "#!lua name=torture
redis.register_function('take', function(keys, args)
    return redis.call('LOCK.ACQUIRE', keys[1], 'PX', args[1])
end)";

/// One round on a new server.
fn round(way: Way, mut dice: Dice) -> Tally {
    // With one tick a second, a sink that only a tick can detect is detected late.
    let hz = if dice.percent(50) { "1" } else { "10" };
    let master = server(&["--hz", hz, "--dynamic-hz", "no"]).start();
    master.allow_silent_changes();
    let load = Load { port: AtomicU16::new(master.port()), stop: AtomicBool::new(false) };
    let mut scene = Scene { master: &master, replicas: Vec::new(), load: &load, dice: Dice::new(dice.next()) };
    let mut conn = master.conn();
    conn.text(&["FUNCTION", "LOAD", FUNCTION]);
    let mut before = 0;
    std::thread::scope(|scope| {
        let _stop = SetAtEnd(&load.stop);
        let workers: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (load, seed) = (&load, dice.next());
                scope.spawn(move || load::work(load, seed))
            })
            .collect();
        until("writes are not replicated", || (unreplicated(&mut conn) > 100).then_some(()));
        scene.wait_a_little();
        before = unreplicated(&mut conn);
        scene.begin(way);
        scene.wait_a_little();
        scene.until_in_sync_unless(way);
        scene.assert_it_was(way);
        scene.wait_a_little();
        load.stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap();
        }
    });
    let unreplicated = unreplicated(&mut conn);
    Tally { rounds: 1, unreplicated, late: unreplicated - before, keys: compare(&scene, way) }
}

impl Scene<'_> {
    /// A failover swaps the roles.
    fn until_in_sync_unless(&self, way: Way) {
        if way != Way::Failover {
            self.until_in_sync();
        }
    }
}

/// Compares everything on the servers of a round. Returns the number of keys.
fn compare(scene: &Scene<'_>, way: Way) -> usize {
    let (master, followers): (&Server, Vec<&Server>) = if way == Way::Failover {
        (&scene.replicas[0], vec![scene.master])
    } else {
        (scene.master, scene.replicas.iter().collect())
    };
    let mut conn = master.conn();
    until_aof_is_complete(&mut conn);
    let content = Content::at_rest(master);
    for (at, follower) in followers.iter().enumerate() {
        follower.allow_silent_changes();
        master.wait_offset(follower);
        assert_same(&format!("{way:?}, replica {at}"), &content, follower);
    }
    if conn.info("persistence", "aof_enabled").unwrap() == "1" {
        assert_same(&format!("{way:?}, AOF"), &content, &reloaded(master.dir()));
        set(&mut conn, "appendonly", "no");
    }
    content.len()
}

#[test]
fn sinks_that_come_and_go_miss_nothing() {
    let seed = env_number("TORTURE_SEED").unwrap_or(1);
    let rounds = env_number("TORTURE_ROUNDS").unwrap_or(u64::try_from(Way::ALL.len()).unwrap());
    watch::allow(ROUND * u32::try_from(rounds).unwrap());
    if Server::start().conn().is_before_7() {
        skipped("sinks that come and go", "before 7.0 every write is replicated");
        return;
    }
    let mut dice = Dice::new(seed);
    let mut tally: BTreeMap<Way, Tally> = BTreeMap::new();
    let begin = Instant::now();
    for number in 0..rounds {
        let way = Way::ALL[usize::try_from(number).unwrap() % Way::ALL.len()];
        let had = round(way, Dice::new(dice.next()));
        let row = tally.entry(way).or_default();
        row.rounds += had.rounds;
        row.unreplicated += had.unreplicated;
        row.late += had.late;
        row.keys += had.keys;
    }
    println!("seed {seed}, {rounds} rounds, {} s, no difference", begin.elapsed().as_secs());
    println!(
        "{:<18} {:>6} {:>14} {:>12} {:>13}",
        "way", "rounds", "unreplicated writes", "late of them", "keys compared"
    );
    for (way, Tally { rounds, unreplicated, late, keys }) in tally {
        println!("{:<18} {rounds:>6} {unreplicated:>14} {late:>12} {keys:>13}", format!("{way:?}"));
    }
}
