//! Who is served when: in the order of arrival, neighbours who bear each other together.

use super::{acquire, acquire_all};
use crate::support::{until, Conn, Reply, Server};
use crate::waiting::is_silent;
use std::time::Duration;

struct Line {
    server: Server,
    control: Conn,
}

impl Line {
    fn start(module_args: &[&str]) -> Self {
        let server = Server::with().module_args(module_args).start();
        let control = server.conn();
        Self { server, control }
    }

    /// A client that waits.
    fn wait(&mut self, command: &[&str]) -> Conn {
        let before = self.waiters();
        let mut conn = self.server.conn();
        conn.send(&[command, &["EX", "60", "WAIT", "60000"]].concat());
        until("it waits", || (self.waiters() == before + 1).then_some(()));
        conn
    }

    fn waiters(&mut self) -> i64 {
        let info = self.control.text(&["INFO", "lock"]);
        info.lines().find_map(|line| line.strip_prefix("lock_waiters:")?.trim().parse().ok()).unwrap()
    }

    fn release(&mut self, keys: &[&str], token: &str) -> i64 {
        let count = keys.len().to_string();
        self.control.int(&[&["LOCK.MRELEASE", &count], keys, &[token]].concat())
    }
}

fn token(conn: &mut Conn) -> String {
    conn.read().int().to_string()
}

const SOON: Duration = Duration::from_millis(150);

/// Asserts that nobody answers within a time.
#[track_caller]
fn assert_waits(conn: &mut Conn, time: Duration) {
    assert!(is_silent(conn, time), "{:?}", conn.try_read());
}

#[test]
fn writers_in_a_stream_of_readers_are_served_in_order() {
    let mut line = Line::start(&[]);
    let mut control = line.server.conn();
    let reader = ["LOCK.ACQUIRE", "k", "SHARED"];
    let writer = ["LOCK.ACQUIRE", "k"];
    let readers: Vec<String> = (0..3).map(|_| acquire(&mut control, &["k", "EX", "60", "SHARED"])).collect();
    let mut first_writer = line.wait(&writer);
    let mut behind: Vec<Conn> = (0..3).map(|_| line.wait(&reader)).collect();
    let mut second_writer = line.wait(&writer);
    let mut last = line.wait(&reader);
    assert!(control.call(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED"]).is_nil(), "no newcomer overtakes a writer");
    for (at, reader) in readers.iter().enumerate() {
        if at > 0 {
            assert_waits(&mut first_writer, Duration::from_millis(20));
        }
        assert_eq!(line.release(&["k"], reader), 1);
    }
    let held = token(&mut first_writer);
    assert_waits(&mut behind[0], SOON);
    assert_eq!(line.release(&["k"], &held), 1);
    // Neighbours who bear each other get it together, up to the next writer.
    let tokens: Vec<String> = behind.iter_mut().map(token).collect();
    assert_waits(&mut last, SOON);
    for reader in &tokens {
        assert_eq!(line.release(&["k"], reader), 1);
    }
    let held = token(&mut second_writer);
    assert_waits(&mut last, SOON);
    assert_eq!(line.release(&["k"], &held), 1);
    token(&mut last);
}

#[test]
fn a_writer_that_leaves_lets_the_readers_behind_it_in() {
    let mut line = Line::start(&[]);
    let mut control = line.server.conn();
    acquire(&mut control, &["k", "EX", "60", "SHARED"]);
    let mut writer = line.wait(&["LOCK.ACQUIRE", "k", "ID", "5"]);
    let mut reader = line.wait(&["LOCK.ACQUIRE", "k", "SHARED"]);
    assert_eq!(control.int(&["LOCK.CANCEL", "k", "5"]), 1);
    assert!(writer.read().is_nil());
    token(&mut reader);
    // So it is when one goes away.
    let gone = line.wait(&["LOCK.ACQUIRE", "k"]);
    let mut reader = line.wait(&["LOCK.ACQUIRE", "k", "SHARED"]);
    drop(gone);
    token(&mut reader);
}

#[test]
fn never_more_than_the_limit_hold_also_when_holders_die() {
    const MOST: i64 = 3;
    let mut line = Line::start(&["margin-ms", "0"]);
    let mut holders: Vec<Conn> = Vec::new();
    let command = ["LOCK.ACQUIRE", "k", "LIMIT", "3", "SESSION"];
    let mut waiting: Vec<Conn> = Vec::new();
    for _ in 0..MOST {
        let mut conn = line.server.conn();
        conn.int(&[&command[..], &["EX", "60"]].concat());
        holders.push(conn);
    }
    for _ in 0..12 {
        waiting.push(line.wait(&command));
    }
    let mut looks = line.server.conn();
    let mut live = || {
        let info = looks.call(&["LOCK.INFO", "k", "FULL"]);
        let holders = info.field("holders");
        let live = holders.list().iter().filter(|holder| holder.field("overdue-ms").is_nil()).count();
        i64::try_from(live).unwrap()
    };
    for (at, mut next) in waiting.into_iter().enumerate() {
        assert!(live() <= MOST);
        // Killed in the middle, now this one, now that one.
        let dead = holders.remove(at % holders.len());
        drop(dead);
        token(&mut next);
        holders.push(next);
        assert!(live() <= MOST, "{}", live());
    }
    assert_eq!(line.waiters(), 0);
}

#[test]
fn places_come_free_by_time() {
    let mut line = Line::start(&["margin-ms", "0"]);
    let mut control = line.server.conn();
    for lease in ["60000", "400", "60000"] {
        acquire(&mut control, &["k", "PX", lease, "LIMIT", "3"]);
    }
    let mut limited = line.wait(&["LOCK.ACQUIRE", "k", "LIMIT", "3", "DETAILS"]);
    let mut two = line.wait(&["LOCK.ACQUIRE", "k", "LIMIT", "2"]);
    assert!(matches!(limited.read(), Reply::List(_)));
    assert_waits(&mut two, SOON);
    // A lease that is made shorter counts.
    let info = control.call(&["LOCK.INFO", "k", "FULL"]);
    for holder in &info.field("holders").list()[..2] {
        let token = holder.field("token").int().to_string();
        assert_eq!(control.int(&["LOCK.EXTEND", "k", &token, "PX", "300"]), 1);
    }
    token(&mut two);
}

#[test]
fn who_waits_for_several_locks_gets_them_when_all_are_free_and_holds_nobody_up() {
    let mut line = Line::start(&[]);
    let mut control = line.server.conn();
    let [a, b] = ["a", "b"].map(|key| acquire(&mut control, &[key, "EX", "60"]));
    let mut all = line.wait(&["LOCK.MACQUIRE", "3", "a", "b", "c"]);
    // c is free, and stays so for others.
    let c = acquire(&mut control, &["c", "EX", "60"]);
    let mut behind = line.wait(&["LOCK.ACQUIRE", "a"]);
    assert_eq!(line.release(&["a"], &a), 1);
    let a = token(&mut behind);
    assert_eq!(line.release(&["b"], &b), 1);
    assert_eq!(control.int(&["EXISTS", "b"]), 0, "nothing is reserved");
    assert_eq!(line.release(&["c"], &c), 1);
    assert_waits(&mut all, SOON);
    assert_eq!(line.release(&["a"], &a), 1);
    let held = token(&mut all);
    assert_eq!(line.release(&["a", "b", "c"], &held), 3);
    assert_eq!(control.int(&["DBSIZE"]), 0);
}

#[test]
fn who_waits_for_several_locks_comes_behind_those_who_came_before() {
    let mut line = Line::start(&[]);
    let mut control = line.server.conn();
    let held = acquire_all(&mut control, &["a", "b"], &["EX", "60"]);
    let mut first = line.wait(&["LOCK.ACQUIRE", "b"]);
    let mut all = line.wait(&["LOCK.MACQUIRE", "2", "a", "b"]);
    let mut later = line.wait(&["LOCK.ACQUIRE", "b"]);
    assert_eq!(line.release(&["a", "b"], &held), 2);
    let b = token(&mut first);
    assert_waits(&mut all, SOON);
    assert_eq!(line.release(&["b"], &b), 1);
    let held = token(&mut all);
    // It came later.
    assert_waits(&mut later, SOON);
    assert_eq!(line.release(&["a", "b"], &held), 2);
    token(&mut later);
}

#[test]
fn one_cancel_ends_a_wait_for_several_locks() {
    let mut line = Line::start(&[]);
    let mut control = line.server.conn();
    acquire(&mut control, &["a", "EX", "60"]);
    let mut all = line.wait(&["LOCK.MACQUIRE", "2", "a", "b", "ID", "8"]);
    assert_eq!(control.int(&["LOCK.CANCEL", "b", "8"]), 1);
    assert!(all.read().is_nil());
    assert_eq!(control.int(&["LOCK.CANCEL", "a", "8"]), 0);
    assert_eq!(line.waiters(), 0);
}

#[test]
fn a_grant_of_several_locks_that_nobody_receives_passes_on() {
    let mut line = Line::start(&[]);
    let mut control = line.server.conn();
    let held = acquire(&mut control, &["a", "EX", "60"]);
    let mut dying = line.server.conn();
    dying.send(&["CLIENT", "ID"]);
    let id = dying.read().int().to_string();
    dying.send(&["LOCK.MACQUIRE", "2", "a", "b", "EX", "60", "WAIT", "60000"]);
    until("it waits", || (line.waiters() == 1).then_some(()));
    // It dies in the same turn of the loop in which it is granted the locks.
    control.send(&["MULTI"]);
    control.send(&["LOCK.RELEASE", "a", &held]);
    control.send(&["CLIENT", "KILL", "ID", &id]);
    control.send(&["EXEC"]);
    for _ in 0..4 {
        control.read();
    }
    until("both are free", || (control.int(&["EXISTS", "a", "b"]) == 0).then_some(()));
    assert_eq!(line.waiters(), 0);
}

#[test]
fn sessions_end_among_several_holders_one_by_one() {
    let mut line = Line::start(&["margin-ms", "0"]);
    let mut control = line.server.conn();
    let mut dying = line.server.conn();
    dying.int(&["LOCK.ACQUIRE", "k", "EX", "60", "SHARED", "SESSION"]);
    acquire_all(&mut dying, &["a", "b"], &["EX", "60", "SESSION"]);
    let stays = acquire(&mut control, &["k", "EX", "60", "SHARED"]);
    let mut limited = line.wait(&["LOCK.ACQUIRE", "k", "LIMIT", "2", "DETAILS"]);
    let mut all = line.wait(&["LOCK.MACQUIRE", "2", "b", "a"]);
    drop(dying);
    assert!(!limited.read().list()[1].is_nil(), "its predecessor never released");
    token(&mut all);
    assert!(control.int(&["LOCK.CHECK", "k", &stays]) > 0);
}
