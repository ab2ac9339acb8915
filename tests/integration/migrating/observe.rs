//! Observes a key that a library and LOCK.* share, in the words of the document's table.

use super::library::{Client, Library};
use testkit::{expire_at_ms, server_time_us, timestamp_us, until, Conn, Reply, Server};

/// Longer than anything here takes.
const LONG_S: u64 = 60;
/// Longer than the work after a grant, and much shorter than a deadline.
const SOME_S: u64 = 5;
/// Libraries that count in whole seconds need at least this lease: a shorter one would end at once.
const SHORT_S: u64 = 2;

/// An observed row of the table.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub writes: String,
    pub state: String,
    pub meets_held: String,
    pub meets_owner: String,
    pub meets_expired: String,
    pub late_release: String,
}

/// One library with one key for each case, on a server that keeps expired locks and on one that does not.
pub struct Case<'a> {
    pub library: &'a Library,
    pub keeps: &'a Server,
    pub ends: &'a Server,
}

impl Case<'_> {
    /// Runs all cases, or returns why the library cannot run.
    pub fn observe(&self) -> Result<Row, String> {
        let (mut client, mut elsewhere) = (self.library.start(self.keeps)?, self.library.start(self.ends)?);
        let (writes, state) = self.the_library_holds_and_releases(&mut client);
        let row = Row {
            late_release: self.the_library_holds_and_dies(&mut client),
            meets_held: self.a_lock_is_held(&mut client, "held", &[]),
            meets_owner: self.a_lock_is_held(&mut client, "owned", &["OWNER", "alice"]),
            meets_expired: self.a_lock_has_expired(&mut client),
            writes,
            state,
        };
        self.a_lock_has_ended(&mut elsewhere, row.meets_held.contains("steals"));
        Ok(row)
    }

    /// The library's name for the lock, and the key that it uses for it.
    fn names(&self, case: &str) -> (String, String) {
        let name = format!("{}/{case}", self.library.name.replace(' ', "_"));
        (name.clone(), format!("{}{name}", self.library.prefix))
    }

    fn fails(&self, case: &str) -> String {
        format!("{}, {case}", self.library.name)
    }

    /// LOCK.* is refused, waits, and gets the lock when the library releases it.
    fn the_library_holds_and_releases(&self, client: &mut Client) -> (String, String) {
        let (name, key) = &self.names("theirs");
        let what = self.fails("the library holds");
        let mut conn = self.keeps.conn();
        assert_eq!(client.ask("try", name, LONG_S), "held", "{what}");
        let value = conn.text(&["GET", key]);
        let seen = (shape(&value, expire_at_ms(&mut conn, key) > 0), conn.state(key));
        assert!(conn.execute(&["LOCK.ACQUIRE", key, "EX", "60"]).is_nil(), "{what}");
        assert!(conn.execute(&["LOCK.RECOVER", key, "EX", "60"]).is_nil(), "{what}");

        let mut waiter = self.waiter(key);
        assert_eq!(conn.text(&["GET", key]), value, "{what}: nothing has changed");
        assert_eq!(client.ask("release", name, LONG_S), "done", "{what}");
        let token = granted(&waiter.read());
        assert!(conn.int(&["LOCK.CHECK", key, &token]) > 0, "{what}");
        assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1, "{what}");
        seen
    }

    /// LOCK.* gets the lock when the library's lease ends, not before; then the library returns.
    fn the_library_holds_and_dies(&self, client: &mut Client) -> String {
        let (name, key) = &self.names("dies");
        let what = self.fails("the library dies");
        let mut conn = self.keeps.conn();
        assert_eq!(client.ask("try", name, SHORT_S), "held", "{what}");
        let expiry_ms = expire_at_ms(&mut conn, key);
        let end_us = if expiry_ms > 0 { expiry_ms * 1000 } else { their_timestamp_us(&conn.text(&["GET", key])) };
        let mut waiter = self.waiter(key);
        let details = waiter.read();
        assert!(server_time_us(&mut conn) >= end_us, "{what}: granted too early");
        let token = granted(&details);
        // A key that expired natively does not identify its holder.
        assert_eq!(details.list()[1].is_nil(), expiry_ms > 0, "{what}: {details:?}");

        let extended = client.ask("extend", name, LONG_S);
        assert!(extended != "done", "{what}: extended a lock that another client holds");
        assert!(conn.int(&["LOCK.CHECK", key, &token]) > 0, "{what}: its late extension: {extended}");
        client.ask("release", name, SHORT_S);
        if conn.int(&["LOCK.CHECK", key, &token]) > 0 {
            assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1, "{what}");
            return "harmless".into();
        }
        assert_eq!(conn.int(&["EXISTS", key]), 0, "{what}");
        "**deletes the lock**".into()
    }

    /// How the library sees a lock of LOCK.*; a refused client waits, and gets the lock when it is released.
    fn a_lock_is_held(&self, client: &mut Client, case: &str, options: &[&str]) -> String {
        let (name, key) = &self.names(case);
        let what = self.fails(case);
        let mut conn = self.keeps.conn();
        let acquire: Vec<&str> = ["LOCK.ACQUIRE", key, "EX", "60"].iter().chain(options).copied().collect();
        let token = conn.int(&acquire).to_string();
        let answer = client.ask("try", name, LONG_S);
        let still_held = conn.int(&["LOCK.CHECK", key, &token]) > 0;
        let seen = match (answer.as_str(), still_held) {
            ("held", false) => "**steals it**",
            ("refused", false) => "**destroys it**",
            ("refused", true) => "refused",
            ("fails ValueError", true) => "fails: ValueError",
            (other, _) => panic!("{what}: {other}, still held: {still_held}"),
        };
        if !still_held {
            assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 0, "{what}: the loser changes nothing");
            return seen.into();
        }
        if seen == "refused" {
            client.start("take", name, SHORT_S);
            assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1, "{what}");
            assert_eq!(client.answer(), "held", "{what}: it waits and gets the lock");
        } else {
            assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 1, "{what}");
            assert_eq!(client.ask("try", name, SHORT_S), "held", "{what}");
        }
        client.ask("release", name, SHORT_S);
        seen.into()
    }

    /// How the library sees a lock that its holder never released, while the key stays for the successor.
    fn a_lock_has_expired(&self, client: &mut Client) -> String {
        let (name, key) = &self.names("expired");
        let what = self.fails("expired");
        let mut conn = self.keeps.conn();
        let token = conn.int(&["LOCK.ACQUIRE", key, "PX", "50"]).to_string();
        // Libraries that read whole seconds see it later.
        let overdue_ms = |conn: &mut Conn| conn.lock(key, "overdue-ms");
        until("it expires", || matches!(overdue_ms(&mut conn), Reply::Int(ms) if ms > 1100).then_some(()));
        let answer = client.ask("try", name, LONG_S);
        let theirs = conn.text(&["GET", key]);
        for (command, arguments) in [("EXTEND", &["PX", "50"][..]), ("RELEASE", &[]), ("CHECK", &[])] {
            if answer != "held" && command == "RELEASE" {
                break; // would release it, late
            }
            let command = format!("LOCK.{command}");
            let words: Vec<&str> = [&*command, key, &token].iter().chain(arguments).copied().collect();
            assert_eq!(conn.int(&words), 0, "{what}: {command} of the earlier holder");
        }
        assert_eq!(conn.text(&["GET", key]), theirs, "{what}");
        match answer.as_str() {
            "held" => "takes over".into(),
            "refused" => "refused until it is gone".into(),
            "fails ValueError" => "fails: ValueError".into(),
            other => panic!("{what}: {other}"),
        }
    }

    /// With `retention-ms 0` every library gets a dead holder's lock once its timestamp has passed.
    fn a_lock_has_ended(&self, client: &mut Client, steals: bool) {
        let (name, key) = &self.names("ended");
        let what = self.fails("ended");
        let mut conn = self.ends.conn();
        let token = conn.int(&["LOCK.ACQUIRE", key, "PX", "50"]).to_string();
        let end_us = timestamp_us(&conn.text(&["GET", key]));
        // A library that takes over with GETSET can do so at the very moment when the key expires, without noticing
        // that: see by_hand.
        until("the library has it", || (client.ask("try", name, SOME_S) == "held").then_some(()));
        if !steals {
            assert!(server_time_us(&mut conn) >= end_us, "{what}: too early");
        }
        let theirs = conn.text(&["GET", key]);
        assert_eq!(conn.int(&["LOCK.RELEASE", key, &token]), 0, "{what}");
        assert_eq!(conn.text(&["GET", key]), theirs, "{what}");
    }

    /// A client in the key's queue.
    fn waiter(&self, key: &str) -> Conn {
        self.keeps.waiter(&["LOCK.ACQUIRE", key, "EX", "60", "WAIT", "20000", "DETAILS"])
    }
}

/// The token of a grant with its details.
fn granted(details: &Reply) -> String {
    details.list()[0].int().to_string()
}

/// The kind of value, in the table's words.
fn shape(value: &str, expires: bool) -> String {
    let whole = value.split('.').next().unwrap();
    let number = value.parse::<f64>().is_ok_and(f64::is_finite);
    let shape = match (number, whole.len(), value.contains('.')) {
        (true, 10, true) => "seconds, fraction",
        (true, 10, false) => "seconds",
        (true, 13, false) => "milliseconds",
        _ => "token",
    };
    format!("{shape}{}", if expires { ", expiry" } else { "" })
}

/// The timestamp of a lock that has no native expiry.
#[allow(clippy::cast_possible_truncation)]
fn their_timestamp_us(value: &str) -> i64 {
    let number: f64 = value.parse().expect("a timestamp");
    let seconds = if value.len() == 13 { number / 1e3 } else { number };
    // Rounded down: the conversion may differ by less than a millisecond from what the server reads.
    (seconds * 1e3) as i64 * 1000
}
