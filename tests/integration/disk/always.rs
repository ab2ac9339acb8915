//! With `appendfsync always` the server exits when it cannot write its AOF or sync it, before it sends the replies of
//! that iteration. So the next server knows every grant that a client got, and every release that was confirmed.

use super::Data;
use crate::kinds::Row;
use crate::notify::{can_publish, waiting, Subscriber};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use testkit::dice::Dice;
use testkit::disk::{Disk, Fault, AOF};
use testkit::{until, Conn, Reply, Server};

/// The lease of every grant, and the longer one of every extension. No lease ends during the test.
const LEASE: &str = "600";
const LONGER: &str = "6000";
const LEASE_MS: i64 = 600_000;
/// The locks that all clients share.
const SHARED: [&str; 3] = ["a", "b", "c"];
/// How many grants there are before the disk fails.
const GRANTS: u64 = 60;
/// The client that waits with NOTIFY.
const NOTIFIED: u64 = 5;

/// What a client knows about one of its grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Held,
    /// An EXTEND was confirmed.
    Extended,
    /// A RELEASE was sent, and its reply did not come.
    Unsure,
    Released,
}

/// A client's grants: key, token, and what it knows.
type Grants = Vec<(String, i64, Known)>;

struct Client<'a> {
    conn: Conn,
    dice: Dice,
    grants: Grants,
    count: &'a AtomicU64,
}

impl Client<'_> {
    /// Takes a lock, perhaps extends it, and releases it unless it is to be kept. An error when the server is gone.
    fn turn(&mut self, number: u64) -> std::io::Result<()> {
        let is_kept = self.dice.percent(20);
        let key = if is_kept { format!("kept:{number}:{}", self.dice.next()) } else { self.dice.pick(&SHARED).into() };
        let id = (self.dice.next() >> 2).to_string();
        let acquire = ["LOCK.ACQUIRE", &key, "EX", LEASE, "WAIT", "60000", "ID", &id];
        let Reply::Int(token) = self.conn.try_execute(&acquire)? else { return Ok(()) };
        self.granted(&key, token, is_kept)
    }

    /// The same without blocking: it asks, is notified, and claims.
    fn notified_turn(&mut self, subscriber: &mut Subscriber) -> std::io::Result<()> {
        let key = self.dice.pick(&SHARED).to_string();
        let id = (self.dice.next() >> 2).to_string();
        let ask = ["LOCK.ACQUIRE", &key, "EX", LEASE, "WAIT", "60000", "ID", &id, "NOTIFY", "channel"];
        let mut reply = self.conn.try_execute(&ask)?;
        if reply == waiting() {
            let message = subscriber.conn.try_read()?;
            assert_eq!(message.list()[2].text(), format!("granted {id} {key}"));
            reply = self.conn.try_execute(&ask)?;
        }
        self.granted(&key, reply.int(), false)
    }

    fn granted(&mut self, key: &str, token: i64, is_kept: bool) -> std::io::Result<()> {
        let at = self.grants.len();
        let text = token.to_string();
        self.grants.push((key.into(), token, Known::Held));
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.dice.percent(50) {
            assert_eq!(self.conn.try_execute(&["LOCK.EXTEND", key, &text, "EX", LONGER])?, Reply::Int(1));
            self.grants[at].2 = Known::Extended;
        }
        if !is_kept {
            self.grants[at].2 = Known::Unsure;
            assert_eq!(self.conn.try_execute(&["LOCK.RELEASE", key, &text])?, Reply::Int(1));
            self.grants[at].2 = Known::Released;
        }
        Ok(())
    }
}

/// Lets clients work until the disk fails at a random moment and the server exits. Returns what they know.
fn work_until_the_disk_fails(server: &mut Server, disk: &Disk, fault: Fault, dice: &mut Dice) -> Grants {
    let count = AtomicU64::new(0);
    let all = Mutex::new(Grants::new());
    let notifies = can_publish(&mut server.conn());
    std::thread::scope(|scope| {
        for number in 0..=NOTIFIED {
            let dice = Dice::new(dice.next());
            let mut client = Client { conn: server.conn(), dice, grants: Grants::new(), count: &count };
            let mut subscriber = (number == NOTIFIED && notifies).then(|| Subscriber::of(server, "channel"));
            let all = &all;
            scope.spawn(move || {
                let mut turn = || match &mut subscriber {
                    Some(subscriber) => client.notified_turn(subscriber),
                    None => client.turn(number),
                };
                while turn().is_ok() {}
                all.lock().unwrap().append(&mut client.grants);
            });
        }
        until("the clients have got grants", || (count.load(Ordering::Relaxed) >= GRANTS).then_some(()));
        disk.fail_after(fault, dice.below(300));
        server.wait_end();
    });
    all.into_inner().unwrap()
}

/// Asserts that the server knows what the clients know.
fn assert_known(conn: &mut Conn, grants: &Grants) {
    for (key, token, known) in grants {
        let left = conn.int(&["LOCK.CHECK", key, &token.to_string()]);
        match known {
            Known::Held => assert!(left > 0, "a client holds {key} with {token}, and the server forgot it"),
            Known::Extended => assert!(left > LEASE_MS, "an extension of {key} is lost: {left} ms are left"),
            Known::Unsure => {}
            Known::Released => assert_eq!(left, 0, "{key} is held again by {token}, which was released"),
        }
    }
    for key in SHARED {
        let of_key = grants.iter().filter(|(name, ..)| name == key);
        let holders = of_key.filter(|(.., known)| matches!(known, Known::Held | Known::Extended)).count();
        assert!(holders <= 1, "{holders} clients hold {key}");
    }
}

#[test]
fn no_grant_is_lost_when_the_disk_fails_under_load() {
    let mut dice = Dice::new(26);
    for fault in [Fault::Full, Fault::FullHalfway, Fault::Torn, Fault::Sync] {
        let _row = Row::of(fault);
        let Some(disk) = Disk::new(AOF) else { return };
        let data = Data::new();
        // With more I/O threads, Redis 8 replies before it has written: docs/FAILURE.md.
        let args = ["--appendonly", "yes", "--appendfsync", "always", "--io-threads", "1"];
        // However busy the machine is, each grant is claimed in time.
        let options = Server::with().args(&args).module_args(&["claim-ms", "60000"]).dir(&data.0);
        let mut server = disk.of(options.clone()).start();
        let grants = work_until_the_disk_fails(&mut server, &disk, fault, &mut dice);
        let log = server.log();
        assert!(log.contains("Exiting"), "{}", server.log_tail(5));
        assert!(!log.contains("crashed by signal") && !log.contains("panic"), "{log}");
        assert!(disk.failed() > 0);
        drop(server);

        let server = options.start();
        let mut conn = server.conn();
        assert_known(&mut conn, &grants);
        // Each later token is larger, on each lock that somebody may still hold too.
        let largest = grants.iter().map(|(_, token, _)| *token).max().unwrap();
        for key in SHARED {
            conn.int(&["DEL", key]);
            assert!(conn.int(&["LOCK.ACQUIRE", key, "EX", LEASE]) > largest);
        }
    }
}
