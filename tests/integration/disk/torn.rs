//! An AOF whose last bytes are missing, as after a crash of the machine. Wherever it was cut, the server starts, and
//! all locks are as they were between two changes: a takeover, a transaction over several keys and a hand-off to a
//! waiter are in the AOF or not, but never in part.

use super::Data;
use crate::notify::{can_publish, waiting, Subscriber, CHANNEL};
use crate::waiting::Locks;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::{content, Conn, Options, Reply, Server};

/// Every lock of the test. `held` is not touched by the changes.
const KEYS: [&str; 7] = ["held", "expired", "k", "m1", "m2", "m3", "set"];
/// No lock disappears during the test, and no unclaimed grant ends.
const SETTINGS: [&str; 6] = ["margin-ms", "0", "retention-ms", "36000000", "claim-ms", "600000"];

/// The name of the moment before the first change.
const FIRST: &str = "the locks before";
/// The change to several keys.
const SEVERAL: &str = "a release of two keys that hands over to a waiter for two";

/// All locks after a change, and how long the AOF was then.
struct Moment {
    change: &'static str,
    length: u64,
    locks: Vec<String>,
}

fn options(data: &Data) -> Options {
    let args = ["--appendonly", "yes", "--appendfsync", "always", "--aof-load-truncated", "yes"];
    Server::with().args(&args).module_args(&SETTINGS).dir(&data.0)
}

/// The values and native expiries of all locks.
fn locks(conn: &mut Conn) -> Vec<String> {
    KEYS.iter().map(|key| format!("{key} {}", content(conn, key))).collect()
}

/// The changes to one server's locks, one write each.
struct Story<'a> {
    data: &'a Data,
    locks: Locks,
    moments: Vec<Moment>,
    largest: i64,
}

impl Story<'_> {
    fn token(&mut self, command: &[&str]) -> String {
        let token = self.locks.conn.int(command);
        self.largest = self.largest.max(token);
        token.to_string()
    }

    /// Notes what a change has done.
    fn note(&mut self, change: &'static str) {
        let length = fs::metadata(self.data.aof()).unwrap().len();
        if let Some(last) = self.moments.last() {
            assert!(length > last.length, "{change} is not in the AOF");
        }
        let locks = locks(&mut self.locks.conn);
        self.moments.push(Moment { change, length, locks });
    }

    fn of(data: &Data) -> Story<'_> {
        let mut story = Story { data, locks: Locks::on(options(data).start()), moments: Vec::new(), largest: 0 };
        story.token(&["LOCK.ACQUIRE", "held", "EX", "6000", "ID", "1"]);
        story.token(&["LOCK.ACQUIRE", "expired", "PX", "1", "OWNER", "first"]);
        let k = story.token(&["LOCK.ACQUIRE", "k", "EX", "6000"]);
        let m = story.token(&["LOCK.MACQUIRE", "2", "m1", "m3", "EX", "6000"]);
        let set = story.token(&["LOCK.ACQUIRE", "set", "EX", "6000"]);
        story.note(FIRST);

        story.token(&["LOCK.ACQUIRE", "expired", "EX", "6000", "OWNER", "second"]);
        story.note("a takeover");

        let mut next = story.locks.wait_with(&["LOCK.ACQUIRE", "k", "EX", "6000", "WAIT", "60000", "OWNER", "next"]);
        story.token_of_release(&["LOCK.RELEASE", "k", &k], 1);
        next.granted();
        story.note("a release that hands over");

        let several = ["LOCK.MACQUIRE", "2", "m1", "m2", "EX", "6000", "WAIT", "60000", "OWNER", "several"];
        let mut next = story.locks.wait_with(&several);
        story.token_of_release(&["LOCK.MRELEASE", "2", "m1", "m3", &m], 2);
        next.granted();
        story.note(SEVERAL);

        let share = ["LOCK.ACQUIRE", "set", "EX", "6000", "WAIT", "60000", "SHARED"];
        let mut reader = story.locks.wait_with(&share);
        story.token_of_release(&["LOCK.RELEASE", "set", &set], 1);
        let first = reader.granted().to_string();
        story.note("a release that hands over to a reader");
        let shared = [first, story.token(&share)];
        story.note("a second reader");

        story.token_of_release(&["LOCK.EXTEND", "set", &shared[0], "EX", "9000"], 1);
        story.note("an extension of one of them");
        if can_publish(&mut story.locks.conn) {
            story.claim(&shared);
        }
        story.largest = story.locks.conn.int(&["LOCK.ACQUIRE", "m3", "EX", "6000"]);
        story.note("the last grant");
        story
    }

    fn token_of_release(&mut self, command: &[&str], count: i64) {
        assert_eq!(self.locks.conn.int(command), count);
    }

    /// A grant to an attempt with NOTIFY, and its claim.
    fn claim(&mut self, shared: &[String; 2]) {
        let mut subscriber = Subscriber::of(&self.locks.server, CHANNEL);
        let ask = ["LOCK.ACQUIRE", "set", "EX", "6000", "WAIT", "60000", "ID", "2", "NOTIFY", CHANNEL];
        assert_eq!(self.locks.conn.execute(&ask), waiting());
        self.token_of_release(&["LOCK.RELEASE", "set", &shared[0]], 1);
        self.note("a release by the first reader");
        self.token_of_release(&["LOCK.RELEASE", "set", &shared[1]], 1);
        subscriber.gets("granted 2 set");
        self.note("a release that hands over to an attempt with NOTIFY");
        self.token(&ask);
        self.note("its claim");
    }
}

/// Starts a server from an AOF with only this many bytes, and asserts that its locks are those of a moment.
fn starts_as_before(data: &Data, length: u64, expected: &Moment, largest: i64) {
    let cut = data.cut(length);
    let server = options(&cut).start();
    let mut conn = server.conn();
    let last = expected.change;
    let found = locks(&mut conn);
    assert_eq!(found, expected.locks, "cut at {length}: not as after {last}");
    for key in KEYS {
        let is_expired = key == "expired" && last == FIRST;
        let state = match conn.int(&["EXISTS", key]) {
            0 => "free",
            _ if is_expired => "expired",
            _ => "held",
        };
        assert_eq!(conn.state(key), state, "{key}, cut at {length}, after {last}");
    }
    assert_eq!(conn.execute(&["LOCK.ACQUIRE", "held", "EX", "5"]), Reply::Nil);
    assert!(conn.int(&["LOCK.ACQUIRE", "new", "EX", "5"]) > largest, "cut at {length}: tokens go back");
    let log = server.log();
    assert!(!log.contains("crashed by signal") && !log.contains("panic"), "{log}");
}

#[test]
fn each_lock_is_as_before_a_torn_write_or_as_after_it() {
    let data = Data::new();
    let Story { moments, largest, locks, .. } = Story::of(&data);
    locks.server.signal("KILL");
    drop(locks);
    let cuts: Vec<(u64, &Moment)> = moments
        .windows(2)
        .flat_map(|pair| {
            let (before, after) = (&pair[0], &pair[1]);
            let all = before.length..after.length;
            // Each byte of the changes to several keys, and of each other change some bytes, the first and the last.
            let is_tried = |length: &u64| {
                after.change == SEVERAL || (length - before.length) % 16 < 2 || *length == after.length - 1
            };
            all.filter(is_tried).map(move |length| (length, before))
        })
        .collect();
    assert!(cuts.len() > 300, "{} cuts", cuts.len());
    let (next, data) = (AtomicUsize::new(0), &data);
    // Starting a server is mostly waiting.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((length, expected)) = cuts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    starts_as_before(data, *length, expected, largest);
                }
            });
        }
    });
}
