//! With `appendfsync everysec`, and after a snapshot that failed, the server goes on and refuses writes with MISCONF.
//! A command that it refuses changes no lock, the queue stays as it is, and it moves on once the disk works.

use super::Data;
use crate::kinds::{Row, KINDS};
use crate::notify::{can_publish, pass, waiting, Subscriber, CHANNEL};
use crate::waiting::{Locks, Waiter};
use testkit::disk::{Disk, Fault, AOF, SNAPSHOT};
use testkit::{until, Conn, Options, Reply, Server};

/// Why the server refuses writes: its AOF cannot be written or synced, or its last snapshot failed.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Aof(Fault),
    Snapshot,
}

const TROUBLES: [Trouble; 5] = [
    Trouble::Aof(Fault::Full),
    Trouble::Aof(Fault::FullHalfway),
    Trouble::Aof(Fault::Torn),
    Trouble::Aof(Fault::Sync),
    Trouble::Snapshot,
];

impl Trouble {
    /// Whether this server refuses writes then: before 7.0 it takes no notice of a failed fsync.
    fn is_noticed(self) -> bool {
        !matches!(self, Self::Aof(Fault::Sync)) || !Server::connected().1.is_before_7()
    }

    fn disk(self) -> Option<Disk> {
        Disk::new(if matches!(self, Self::Aof(_)) { AOF } else { SNAPSHOT })
    }

    fn options(self, disk: &Disk) -> Options {
        let args: &[&str] = match self {
            Self::Aof(_) => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Self::Snapshot => &[],
        };
        disk.of(Server::with().args(args).module_args(&["margin-ms", "0"]))
    }

    /// Lets the disk fail, and waits until the server refuses writes.
    fn begin(self, disk: &Disk, conn: &mut Conn) {
        match self {
            Self::Aof(fault) => disk.fail(fault),
            Self::Snapshot => {
                // 6.2 does not take this from the command line, where the test kit has switched snapshots off.
                conn.ok(&["CONFIG", "SET", "save", "3600 1"]);
                disk.fail(Fault::Sync);
                conn.execute(&["BGSAVE"]);
            }
        }
        // Without a write the server does not notice that its AOF cannot be written.
        until("the server refuses writes", || is_misconf(&conn.execute(&["SET", "other", "1"])).then_some(()));
        assert!(disk.failed() > 0);
    }

    /// The disk works again: waits until the server writes again.
    fn end(self, disk: &Disk, conn: &mut Conn) {
        disk.mend();
        match self {
            // 7.0 syncs again only after a write, which it refuses. The operator has to help.
            Self::Aof(Fault::Sync) => {
                conn.ok(&["CONFIG", "SET", "appendonly", "no"]);
                conn.ok(&["CONFIG", "SET", "appendonly", "yes"]);
            }
            Self::Aof(_) => {}
            Self::Snapshot => drop(conn.execute(&["BGSAVE"])),
        }
        until("the server writes again", || (!is_misconf(&conn.execute(&["SET", "other", "2"]))).then_some(()));
    }
}

fn is_misconf(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("MISCONF "))
}

/// A holder of `k`, and three that wait for it: blocked with an ID, with NOTIFY, and blocked.
struct Queue {
    locks: Locks,
    token: String,
    first: Waiter,
    /// `None` if a module cannot publish.
    subscriber: Option<Subscriber>,
    last: Waiter,
}

const ASK: [&str; 10] = ["LOCK.ACQUIRE", "k", "PX", "60000", "WAIT", "60000", "ID", "8", "NOTIFY", CHANNEL];

impl Queue {
    fn on(server: Server) -> Self {
        let mut locks = Locks::on(server);
        let token = locks.conn.int(&["LOCK.ACQUIRE", "k", "EX", "600"]).to_string();
        let first = locks.wait(&["ID", "7"]);
        let subscriber = can_publish(&mut locks.conn).then(|| {
            assert_eq!(locks.conn.execute(&ASK), waiting());
            Subscriber::of(&locks.server, CHANNEL)
        });
        let last = locks.wait(&[]);
        Self { locks, token, first, subscriber, last }
    }

    /// The holder releases the lock, and all get it in order. Returns the token of the last, which keeps it.
    fn moves_on(&mut self) -> i64 {
        self.locks.release(&self.token);
        let token = self.first.granted();
        assert!(token > self.token.parse().unwrap());
        self.token = token.to_string();
        self.goes_on()
    }

    /// The first has got the lock and releases it, and the others get it in order.
    fn goes_on(&mut self) -> i64 {
        self.locks.release(&self.token);
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.gets("granted 8 k");
            let token = self.locks.conn.int(&ASK);
            self.locks.release(token);
        }
        self.last.granted()
    }
}

/// Every command that changes a lock.
fn writes(token: &str) -> Vec<Vec<&str>> {
    let mut all: Vec<Vec<&str>> = vec![
        vec!["LOCK.ACQUIRE", "free", "EX", "5"],
        vec!["LOCK.ACQUIRE", "k", "EX", "5", "WAIT", "1000"],
        vec!["LOCK.ACQUIRE", "k", "EX", "5", "WAIT", "1000", "ID", "9"],
        // The command of an attempt that waits.
        vec!["LOCK.ACQUIRE", "k", "EX", "5", "WAIT", "1000", "ID", "7"],
        ASK.to_vec(),
        vec!["LOCK.RECOVER", "expired", "EX", "5"],
        vec!["LOCK.CANCEL", "k", "7"],
        vec!["LOCK.CANCEL", "k", "CHANNEL", CHANNEL],
    ];
    for kind in KINDS {
        all.push(kind.acquire(&["EX", "5"]));
        all.push(kind.command("EXTEND", &[token, "EX", "5"]));
        all.push(kind.command("RELEASE", &[token]));
    }
    all
}

#[test]
fn a_server_that_cannot_write_changes_no_lock_and_keeps_the_queue() {
    for trouble in TROUBLES.into_iter().filter(|trouble| trouble.is_noticed()) {
        let _row = Row::of(trouble);
        let Some(disk) = trouble.disk() else { return };
        let data = Data::new();
        let mut queue = Queue::on(trouble.options(&disk).dir(&data.0).start());
        let mut brief = queue.locks.wait_with(&["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "1000"]);
        queue.locks.conn.int(&["LOCK.ACQUIRE", "expired", "PX", "1"]);
        trouble.begin(&disk, &mut queue.locks.conn);

        let conn = &mut queue.locks.conn;
        let before = conn.text(&["DEBUG", "DIGEST"]);
        for command in writes(&queue.token) {
            let reply = conn.execute(&command);
            assert!(is_misconf(&reply), "{command:?}: {reply:?}");
        }
        assert!(conn.int(&["LOCK.CHECK", "k", &queue.token]) > 0);
        assert_eq!((conn.state("k"), conn.state("expired")), ("held".into(), "expired".into()));
        assert_eq!(conn.execute(&["LOCK.SCAN", "0", "COUNT", "100"]).list()[1].list().len(), 2);
        // This server refuses PING too, so its reply is all that is read.
        assert!(brief.conn.read().is_nil());
        let waiters = if queue.subscriber.is_some() { 3 } else { 2 };
        assert_eq!(queue.locks.waiters(), waiters);
        queue.first.assert_waits();
        assert_eq!(queue.locks.conn.text(&["DEBUG", "DIGEST"]), before);

        trouble.end(&disk, &mut queue.locks.conn);
        let token = queue.moves_on();
        if matches!(trouble, Trouble::Aof(_)) {
            survives_a_crash(queue, &data, token);
        }
    }
}

/// The AOF, whose end was repaired, has the lock that `token` holds, and no other grant of `k`.
fn survives_a_crash(mut queue: Queue, data: &Data, token: i64) {
    let written = |conn: &mut Conn| {
        let info = conn.text(&["INFO", "persistence"]);
        let done = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_buffer_length:0"];
        done.iter().all(|line| info.contains(line))
    };
    until("the AOF is written", || written(&mut queue.locks.conn).then_some(()));
    queue.locks.server.signal("KILL");
    let log = queue.locks.server.log();
    assert!(!log.contains("crashed by signal") && !log.contains("panic"), "{log}");
    drop(queue);
    let server = Server::with().args(&["--appendonly", "yes"]).dir(&data.0).start();
    let mut conn = server.conn();
    assert!(conn.int(&["LOCK.CHECK", "k", &token.to_string()]) > 0);
    assert_eq!(conn.state("free"), "free");
}

/// Waits until the lease of `k` has ended, and longer than a grant to a waiter takes.
fn outlast_the_lease(conn: &mut Conn) {
    until("the lock has expired", || (conn.state("k") == "expired").then_some(()));
    pass(conn, 300);
}

/// A client that got a lock while the server refuses writes could neither claim nor extend nor release it, and after a
/// crash the lock would be free again.
#[test]
fn nothing_is_granted_while_the_server_cannot_write_and_the_queue_moves_on_afterwards() {
    for trouble in TROUBLES.into_iter().filter(|trouble| trouble.is_noticed()) {
        let _row = Row::of(trouble);
        let Some(disk) = trouble.disk() else { return };
        let mut queue = Queue::on(trouble.options(&disk).start());
        assert_eq!(queue.locks.conn.int(&["LOCK.EXTEND", "k", &queue.token, "PX", "2500"]), 1);
        trouble.begin(&disk, &mut queue.locks.conn);
        if queue.locks.conn.state("k") != "held" {
            // On a busy machine, the lease may have ended before.
            continue;
        }
        let (value, waiters) = (queue.locks.conn.text(&["GET", "k"]), queue.locks.waiters());
        outlast_the_lease(&mut queue.locks.conn);
        assert!(!queue.first.conn.has_reply() && !queue.last.conn.has_reply());
        assert_eq!((queue.locks.conn.text(&["GET", "k"]), queue.locks.waiters()), (value, waiters));
        assert!(queue.locks.info("lock", "lock_postponed") > 0);

        trouble.end(&disk, &mut queue.locks.conn);
        queue.token = queue.first.granted().to_string();
        queue.goes_on();
        assert_eq!((queue.locks.info("lock", "lock_unclaimed"), queue.locks.info("lock", "lock_unheard")), (0, 0));
    }
}

#[test]
fn a_grant_that_cannot_be_claimed_while_the_server_refuses_writes_leaves_a_reserved_place() {
    for trouble in [Trouble::Aof(Fault::Full), Trouble::Snapshot] {
        let _row = Row::of(trouble);
        let Some(disk) = trouble.disk() else { return };
        let mut queue = Queue::on(trouble.options(&disk).module_args(&["claim-ms", "3000"]).start());
        let Some(mut subscriber) = queue.subscriber.take() else { return };
        queue.locks.release(&queue.token);
        let token = queue.first.granted();
        queue.locks.release(token);
        subscriber.gets("granted 8 k");
        trouble.begin(&disk, &mut queue.locks.conn);
        assert!(is_misconf(&queue.locks.conn.execute(&ASK)));
        until("the time to claim has passed", || (queue.locks.info("lock", "lock_unclaimed") == 1).then_some(()));
        if !queue.last.conn.has_reply() {
            assert_eq!(queue.locks.info("lock", "lock_places"), 1);
        }
        trouble.end(&disk, &mut queue.locks.conn);
        let token = queue.last.granted();
        // The attempt is back in its place, and is notified.
        assert_eq!(queue.locks.conn.execute(&ASK), waiting());
        queue.locks.release(token);
        subscriber.gets("granted 8 k");
        let token = queue.locks.conn.int(&ASK);
        queue.locks.release(token);
    }
}

#[test]
fn a_session_that_ends_while_the_server_cannot_write_ends_afterwards() {
    for trouble in [Trouble::Aof(Fault::Full), Trouble::Snapshot] {
        let _row = Row::of(trouble);
        let Some(disk) = trouble.disk() else { return };
        let mut locks = Locks::on(trouble.options(&disk).start());
        let mut holder = locks.server.conn();
        let token = holder.int(&["LOCK.ACQUIRE", "k", "EX", "600", "SESSION"]).to_string();
        let mut next = locks.wait(&[]);
        trouble.begin(&disk, &mut locks.conn);
        drop(holder);
        let postponed = locks.info("lock", "lock_postponed");
        until("the end of the session is tried", || (locks.info("lock", "lock_postponed") > postponed).then_some(()));
        assert!(locks.conn.int(&["LOCK.CHECK", "k", &token]) > 0);
        next.assert_waits();
        trouble.end(&disk, &mut locks.conn);
        let token = next.granted();
        locks.release(token);
    }
}

/// The operator lets the server write although its snapshots fail.
#[test]
fn without_the_setting_a_failed_snapshot_stops_nothing() {
    let Some(disk) = Disk::new(SNAPSHOT) else { return };
    let mut locks = Locks::on(Trouble::Snapshot.options(&disk).start());
    let token = locks.hold();
    let mut next = locks.wait(&[]);
    Trouble::Snapshot.begin(&disk, &mut locks.conn);
    locks.conn.ok(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    assert_eq!(locks.conn.int(&["LOCK.EXTEND", "k", &token, "PX", "20"]), 1);
    let token = next.granted();
    locks.release(token);
    assert_eq!(locks.conn.info("persistence", "rdb_last_bgsave_status").as_deref(), Some("err"));
}
