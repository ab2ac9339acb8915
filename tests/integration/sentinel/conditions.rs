//! The conditions under which the grace keeps two clients from holding a lock at once, and what happens without each of
//! them. `stall.rs` tests one of them, the guard after a stall.
//!
//! In each case the master grants a lock that never reaches its replica, and goes away; the replica is promoted, the
//! master returns as its replica, and a second client asks for the lock.

use super::holders::now_us;
use std::thread;
use std::time::Duration;
use testkit::relay::Relay;
use testkit::sentinel::until_long;
use testkit::{skipped, until, Conn, Reply, Server};

const MAX_LAG: &str = "2";
/// The margin of 1 s, max-lag of 2 s, and 2 s: a lease has to be this much shorter than the grace.
const TAKEN_MS: u64 = 5_000;

fn server(max_lag: &str, grace_ms: u64, more: &[&str]) -> Server {
    let replicas = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", max_lag];
    let quick = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
    let grace = grace_ms.to_string();
    Server::with().args(&replicas).args(&quick).args(more).module_args(&["failover-grace-ms", &grace]).start()
}

/// A master that has a replica behind a relay, and grants locks.
pub struct Pair {
    pub master: Server,
    pub replica: Server,
    pub relay: Relay,
}

impl Pair {
    pub fn start(max_lag: &str, graces_ms: [u64; 2], more: &[&str]) -> Self {
        let [master, replica] = graces_ms.map(|grace_ms| server(max_lag, grace_ms, more));
        let relay = Relay::to(master.port());
        let pair = Self { master, replica, relay };
        pair.connect();
        pair
    }

    fn connect(&self) {
        self.replica.conn().ok(&["REPLICAOF", "127.0.0.1", &self.relay.port().to_string()]);
        let mut conn = self.master.conn();
        until_long("the master grants locks", || {
            matches!(conn.execute(&["LOCK.ACQUIRE", "before", "PX", "1"]), Reply::Int(_)).then_some(())
        });
    }

    /// Runs an action that must not reach the replica. A busy machine can prevent that: the replica is cut off for too
    /// long, or the master stalls. Then it reconnects them and tries again.
    fn without_replication<T>(&mut self, mut done: impl FnMut(&Self) -> Result<T, Reply>) -> T {
        for _ in 0..5 {
            match done(self) {
                Ok(value) => return value,
                Err(refused) => assert!(refused.error().starts_with("NOREPLICAS"), "{refused:?}"),
            }
            self.relay = Relay::to(self.master.port());
            self.connect();
        }
        panic!("the master was busy five times");
    }

    /// Has the master grant a lock but not replicate it. Returns the token.
    fn grants_unreplicated(&mut self, lease_ms: u64) -> u64 {
        let mut conn = self.master.conn();
        self.without_replication(|pair| {
            pair.relay.cut();
            acquire(&mut conn, lease_ms)
        })
    }

    /// The master goes away, and returns empty as a replica of its former replica.
    fn fail_over(self) -> (Server, Server) {
        drop(self.master);
        self.replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
        let back = server(MAX_LAG, 0, &["--replicaof", "127.0.0.1", &self.replica.port().to_string()]);
        until("the master is back as a replica", || {
            self.replica.conn().text(&["INFO", "replication"]).contains("state=online").then_some(())
        });
        (self.replica, back)
    }
}

/// A client that waits for a lock. Returns the token, or another reply.
fn acquire(conn: &mut Conn, lease_ms: u64) -> Result<u64, Reply> {
    match conn.execute(&["LOCK.ACQUIRE", "door", "PX", &lease_ms.to_string(), "WAIT", "60000"]) {
        Reply::Int(token) => Ok(token.try_into().unwrap()),
        other => Err(other),
    }
}

/// Like `acquire`, on a master whose replicas have just connected.
fn granted(conn: &mut Conn, lease_ms: u64) -> u64 {
    until_long("a grant", || match acquire(conn, lease_ms) {
        Err(reply) if reply.error().starts_with("NOREPLICAS") => None,
        other => Some(other.unwrap()),
    })
}

/// How long after the end of the first client's lease the second got the lock, in microseconds. Below zero, both had
/// it.
fn gap_us(first: u64, lease_ms: u64, second: u64) -> i64 {
    second.cast_signed() - (first + lease_ms * 1_000).cast_signed()
}

/// The gap between both clients, on a pair with these graces.
fn gap_with(master_grace_ms: u64, replica_grace_ms: u64) -> i64 {
    let mut pair = Pair::start(MAX_LAG, [master_grace_ms, replica_grace_ms], &[]);
    let lease_ms = master_grace_ms - TAKEN_MS;
    let first = pair.grants_unreplicated(lease_ms);
    let (new, _back) = pair.fail_over();
    let least = if replica_grace_ms == 0 { lease_ms } else { replica_grace_ms - TAKEN_MS };
    gap_us(first, lease_ms, granted(&mut new.conn(), least))
}

/// The grace is set on both after a longer lease than it covers has been granted; `None` if it cannot be set.
fn gap_with_a_grace_that_came_later() -> Option<i64> {
    let mut pair = Pair::start(MAX_LAG, [0, 0], &[]);
    if pair.master.conn().is_before_7() {
        eprintln!("skipped: this server has no module settings in CONFIG");
        return None;
    }
    let lease_ms = 30_000;
    let first = pair.grants_unreplicated(lease_ms);
    for server in [&pair.master, &pair.replica] {
        server.conn().ok(&["CONFIG", "SET", "lock.failover-grace-ms", "5500"]);
    }
    let (new, _back) = pair.fail_over();
    Some(gap_us(first, lease_ms, granted(&mut new.conn(), 500)))
}

#[test]
fn the_grace_needs_equal_settings_on_both_servers() {
    // The cases run in parallel, because they mostly wait for graces.
    thread::scope(|scope| {
        let scenes = [(9_000, 9_000), (30_000, 5_500), (30_000, 0)];
        let [same, shorter, none] = scenes.map(|(master, replica)| scope.spawn(move || gap_with(master, replica)));
        let later = scope.spawn(gap_with_a_grace_that_came_later).join().unwrap();
        let [same, shorter, none] = [same, shorter, none].map(|scene| scene.join().unwrap());
        assert!(same >= 0, "the same grace: {same} us");
        assert!(shorter < 0, "a shorter grace on the replica: {shorter} us");
        assert!(none < 0, "no grace on the replica: {none} us");
        assert!(later.is_none_or(|gap| gap < 0), "a grace that was set later: {later:?} us");
    });
}

/// The network splits into two halves, each with a master and one replica, and one replica is all they require.
#[test]
fn with_min_replicas_below_their_number_both_hold_it() {
    let (grace_ms, lease_ms) = (6_000, "1000");
    let pair = Pair::start(MAX_LAG, [grace_ms, grace_ms], &[]);
    let (with_old, with_new) = (server(MAX_LAG, grace_ms, &[]), server(MAX_LAG, grace_ms, &[]));
    with_old.replicate(&pair.master);
    with_new.replicate(&pair.replica);
    pair.relay.cut();
    pair.replica.conn().ok(&["REPLICAOF", "NO", "ONE"]);
    let acquire = |conn: &mut Conn| conn.send(&["LOCK.ACQUIRE", "door", "PX", lease_ms, "WAIT", "60000"]);
    let mut second = pair.replica.conn();
    acquire(&mut second);
    let mut first = pair.master.conn();
    let mut held_until = 0;
    let mut token = String::new();
    let granted = until_long("the second gets it", || {
        if !second.no_reply_within(Duration::from_millis(20)) {
            match second.read() {
                Reply::Int(granted) => return Some(u64::try_from(granted).unwrap()),
                // The new master's own replica is reconnecting, or the master stalled.
                refused => assert!(refused.error().starts_with("NOREPLICAS"), "{refused:?}"),
            }
            acquire(&mut second);
        }
        let sent = now_us();
        match first.execute(&["LOCK.EXTEND", "door", &token, "PX", lease_ms]) {
            Reply::Int(1) => held_until = sent + 1_000_000,
            // On a busy machine, the lock may not be held yet, or may no longer be held.
            _ => {
                if let Reply::Int(granted) = first.execute(&["LOCK.ACQUIRE", "door", "PX", lease_ms]) {
                    token = granted.to_string();
                }
            }
        }
        None
    });
    assert!(granted < held_until, "{granted} {held_until}");
}

/// No grace covers this: a session lost its lock with its connection, and the new master does not know that. A client
/// that lost a SESSION acquires the lock again; it does not extend it.
#[test]
fn an_unreplicated_session_end_is_undone_by_a_failover() {
    let mut pair = Pair::start(MAX_LAG, [11_000, 11_000], &[]);
    let (token, second) = pair.without_replication(|pair| {
        let mut session = pair.master.conn();
        let token = match session.execute(&["LOCK.ACQUIRE", "door", "PX", "6000", "SESSION", "WAIT", "20000"]) {
            Reply::Int(token) => token.to_string(),
            other => return Err(other),
        };
        pair.master.wait_offset(&pair.replica);
        pair.relay.cut();
        drop(session);
        // The second client gets the lock a margin later.
        Ok((token, acquire(&mut pair.master.conn(), 6_000)?))
    });
    let (new, _back) = pair.fail_over();
    let mut conn = new.conn();
    let extended = until("the new master's replica has answered", || {
        let reply = conn.execute(&["LOCK.EXTEND", "door", &token, "PX", "1000"]);
        (!matches!(reply, Reply::Error(_))).then(|| reply.int())
    });
    if now_us() >= second + 6_000_000 {
        return skipped("a session that outlives its connection", "the machine was so slow that its lease has ended");
    }
    assert_eq!(extended, 1);
}
