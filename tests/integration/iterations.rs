//! No iteration of the event loop takes long, however many locks come free or end at one moment. Measured is the
//! processor time of the server, which others on the machine do not change.

use crate::notify::can_publish;
use crate::support::clock::Clocks;
use crate::support::{until_within, Conn, Reply, Server};
use std::time::Duration;

/// How many locks.
const CROWD: usize = 200_000;
/// The longest iteration that may be seen. One that does all of the work takes 80 ms and more; one that does a piece, 3,
/// and up to 30 where the allocator of the server is that of libc.
const LONGEST: Duration = Duration::from_millis(50);
/// How long the whole crowd may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Asks a server again and again, and notes how much processor time it used between two answers.
struct Meter {
    conn: Conn,
    file: String,
    last: Duration,
    most: Duration,
}

impl Meter {
    fn of(server: &Server) -> Self {
        let file = format!("/proc/{}/schedstat", server.pid());
        let mut meter = Meter { conn: server.conn(), file, last: Duration::ZERO, most: Duration::ZERO };
        meter.last = meter.used();
        meter
    }

    fn used(&self) -> Duration {
        let stat = std::fs::read_to_string(&self.file).unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    }

    /// Measures until `field` of INFO lock is `wanted`.
    fn until(&mut self, field: &str, wanted: usize) -> Duration {
        until_within(LONG, field, || {
            let number: usize = self.conn.info("lock", field).unwrap().parse().unwrap();
            let used = self.used();
            self.most = self.most.max(used.saturating_sub(self.last));
            self.last = used;
            (number == wanted).then_some(())
        });
        self.most
    }
}

/// Runs a script for the locks 1 to [`CROWD`], in pieces.
fn for_each(conn: &mut Conn, script: &str) {
    for from in (1..=CROWD).step_by(1_000) {
        let script = format!("for n = {from}, {} do local key = KEYS[1] .. n {script} end", from + 999);
        assert_eq!(conn.call(&["EVAL", &script, "1", "k"]), Reply::Nil);
    }
}

#[test]
fn a_connection_that_ends_with_a_crowd_of_locks_keeps_nobody_waiting() {
    let (server, mut holder) = Server::connected();
    for from in (0..CROWD).step_by(1_000) {
        let names: Vec<String> = (from..from + 1_000).map(|number| format!("k{number}")).collect();
        let mut call = vec!["LOCK.MACQUIRE", "1000"];
        call.extend(names.iter().map(String::as_str));
        call.extend(["EX", "600", "SESSION"]);
        holder.int(&call);
    }
    let mut meter = Meter::of(&server);
    drop(holder);
    let most = meter.until("lock_sessions_ended", CROWD);
    eprintln!("the longest iteration: {most:?}");
    assert!(most < LONGEST, "{most:?}");
    assert_eq!(meter.conn.info("lock", "lock_sessions").as_deref(), Some("0"));
}

#[test]
fn a_crowd_of_locks_that_expire_at_one_moment_keeps_nobody_waiting() {
    let Some(clocks) = Clocks::new(&[0]) else { return };
    let settings = ["max-queued", "400000", "claim-ms", "3600000", "retention-ms", "-1"];
    let server = clocks.of(Server::with().module_args(&settings)).start();
    let mut conn = server.conn();
    if !can_publish(&mut conn) {
        return;
    }
    for_each(
        &mut conn,
        "redis.call('LOCK.ACQUIRE', key, 'EX', 600) \
         redis.call('LOCK.ACQUIRE', key, 'EX', 600, 'WAIT', 600000, 'ID', n, 'NOTIFY', 'c')",
    );
    let mut meter = Meter::of(&server);
    clocks.set(0, &[700_000_000]);
    let most = meter.until("lock_hand_offs", CROWD);
    eprintln!("the longest iteration: {most:?}");
    assert!(most < LONGEST, "{most:?}");
}

#[test]
fn a_crowd_of_places_that_end_at_one_moment_keeps_nobody_waiting() {
    let Some(clocks) = Clocks::new(&[0; 3]) else { return };
    let server = clocks.of(Server::with().module_args(&["max-queued", "400000"])).start();
    let mut conn = server.conn();
    for_each(
        &mut conn,
        "redis.call('LOCK.ACQUIRE', key, 'EX', 600) redis.call('LOCK.ACQUIRE', key, 'EX', 600, 'ID', n)",
    );
    assert!(conn.info("lock", "lock_places").is_some_and(|places| places != "0"));
    let mut meter = Meter::of(&server);
    clocks.set(0, &[20_000_000; 3]);
    let most = meter.until("lock_places", 0);
    eprintln!("the longest iteration: {most:?}");
    assert!(most < LONGEST, "{most:?}");
}
