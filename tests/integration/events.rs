//! Keyspace events of each command, in order: those that tools already subscribe to (set, expire, del) and our own
//! (lock.acquire, lock.recover, lock.extend, lock.release, lock.lapse), which belong to the module class, `d`. A
//! command that changes nothing raises no event.

mod several;
mod watch;

use crate::metrics::number;
use testkit::{until, Conn, Server};

/// A server, a connection to it, and a subscriber to its keyspace events.
struct Subscriber {
    conn: Conn,
    events: Conn,
    server: Server,
}

impl Subscriber {
    /// Subscribes to these classes of events.
    fn to(classes: &str) -> Self {
        Self::with(classes, &["margin-ms", "0"])
    }

    fn with(classes: &str, module_args: &[&str]) -> Self {
        let server = Server::with().module_args(module_args).start();
        let (mut conn, mut events) = (server.conn(), server.conn());
        conn.ok(&["CONFIG", "SET", "notify-keyspace-events", classes]);
        for subscribe in [&["PSUBSCRIBE", "__keyspace@*__:*"][..], &["SUBSCRIBE", "enough"]] {
            assert_eq!(events.execute(subscribe).list()[0].text(), subscribe[0].to_lowercase());
        }
        Self { conn, events, server }
    }

    /// The events since the last call, each preceded by its key.
    fn received(&mut self) -> Vec<String> {
        assert_eq!(self.conn.int(&["PUBLISH", "enough", ""]), 1);
        let mut received = Vec::new();
        loop {
            let message = self.events.read();
            match message.list() {
                [_, _, channel, event] => {
                    let channel = channel.text();
                    let (_, key) = channel.split_once(':').expect("the channel names the key");
                    received.push(format!("{key} {}", event.text()));
                }
                _ => return received,
            }
        }
    }

    /// Asserts the events of the key `k` since the last call.
    #[track_caller]
    fn gets(&mut self, events: &[&str]) {
        let expected: Vec<_> = events.iter().map(|event| format!("k {event}")).collect();
        assert_eq!(self.received(), expected);
    }

    /// Takes `k` for a minute. Returns its token.
    fn hold(&mut self) -> String {
        self.conn.int(&["LOCK.ACQUIRE", "k", "EX", "60"]).to_string()
    }

    /// Takes `k` with a lease that is already overdue.
    fn let_expire(&mut self) -> String {
        let token = self.conn.int(&["LOCK.ACQUIRE", "k", "PX", "1"]).to_string();
        until("the lock is expired", || (self.conn.state("k") == "expired").then_some(()));
        token
    }

    /// A client that waits for `k`.
    fn waiter(&self, options: &[&str]) -> Conn {
        self.server.waiter(&[&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000"], options].concat())
    }
}

#[test]
fn each_command_that_changes_a_lock_raises_its_events() {
    let mut all = Subscriber::to("KA");
    let token = all.hold();
    all.gets(&["set", "expire", "lock.acquire"]);
    assert_eq!(all.conn.int(&["LOCK.EXTEND", "k", &token, "EX", "9"]), 1);
    all.gets(&["set", "expire", "lock.extend"]);
    assert_eq!(all.conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    all.gets(&["del", "lock.release"]);

    all.let_expire();
    all.gets(&["set", "expire", "lock.acquire"]);
    all.hold();
    all.gets(&["set", "expire", "lock.lapse", "lock.acquire"]);
    all.conn.int(&["DEL", "k"]);
    all.let_expire();
    all.received();
    let token = all.conn.execute(&["LOCK.RECOVER", "k", "PX", "1"]).list()[0].int().to_string();
    all.gets(&["set", "expire", "lock.lapse", "lock.recover"]);
    until("it is late", || (all.conn.state("k") == "expired").then_some(()));
    assert_eq!(all.conn.int(&["LOCK.RELEASE", "k", &token]), -1);
    all.gets(&["del", "lock.release"]);
}

#[test]
fn an_attempt_sent_again_or_cancelled_raises_its_events() {
    let mut all = Subscriber::to("KA");
    all.conn.int(&["LOCK.ACQUIRE", "k", "EX", "9", "ID", "5"]);
    all.gets(&["set", "expire", "lock.acquire"]);
    all.conn.int(&["LOCK.ACQUIRE", "k", "EX", "60", "ID", "5"]);
    all.gets(&["set", "expire", "lock.extend"]);
    all.conn.int(&["LOCK.ACQUIRE", "k", "EX", "9", "ID", "5"]);
    all.gets(&[]);
    assert_eq!(all.conn.int(&["LOCK.CANCEL", "k", "5"]), 1);
    all.gets(&["del", "lock.release"]);
}

#[test]
fn without_a_native_expiry_there_is_no_expire_event() {
    let mut all = Subscriber::with("KA", &["retention-ms", "-1"]);
    let token = all.hold();
    all.gets(&["set", "lock.acquire"]);
    assert_eq!(all.conn.int(&["LOCK.EXTEND", "k", &token, "EX", "9"]), 1);
    all.gets(&["set", "lock.extend"]);
}

#[test]
fn a_lock_that_is_passed_on_is_never_seen_free() {
    let mut all = Subscriber::to("KA");
    let token = all.hold();
    all.received();
    let mut waiter = all.waiter(&[]);
    all.gets(&[]);
    assert_eq!(all.conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    waiter.read().int();
    all.gets(&["set", "expire", "lock.release", "lock.acquire"]);

    // Through LOCK.CANCEL with the holder's ID.
    all.conn.int(&["DEL", "k"]);
    all.conn.int(&["LOCK.ACQUIRE", "k", "EX", "9", "ID", "5"]);
    let mut waiter = all.waiter(&[]);
    all.received();
    assert_eq!(all.conn.int(&["LOCK.CANCEL", "k", "5"]), 1);
    waiter.read().int();
    all.gets(&["set", "expire", "lock.release", "lock.acquire"]);
}

#[test]
fn a_lock_that_expires_or_is_freed_by_others_raises_its_events() {
    let mut all = Subscriber::to("KA");
    all.hold();
    let mut waiter = all.waiter(&[]);
    all.received();
    all.conn.int(&["DEL", "k"]);
    waiter.read().int();
    all.gets(&["del", "set", "expire", "lock.acquire"]);

    all.conn.int(&["DEL", "k"]);
    all.conn.int(&["LOCK.ACQUIRE", "k", "PX", "200"]);
    let mut waiter = all.waiter(&[]);
    all.received();
    waiter.read().int();
    all.gets(&["set", "expire", "lock.lapse", "lock.acquire"]);
}

#[test]
fn a_grant_that_nobody_received_is_released() {
    let mut all = Subscriber::to("KA");
    let token = all.hold();
    let mut gone = all.server.conn();
    let client = gone.int(&["CLIENT", "ID"]).to_string();
    gone.send(&["LOCK.ACQUIRE", "k", "EX", "60", "WAIT", "60000"]);
    until("it waits", || (number(&mut all.conn, "waiters") == 1).then_some(()));
    all.received();
    // In one iteration: no reply can leave in between.
    all.conn.ok(&["MULTI"]);
    all.conn.text(&["LOCK.RELEASE", "k", &token]);
    all.conn.text(&["CLIENT", "KILL", "ID", &client]);
    assert_eq!(all.conn.execute(&["EXEC"]).list().len(), 2);
    until("the lock is free again", || (all.conn.int(&["EXISTS", "k"]) == 0).then_some(()));
    all.gets(&["set", "expire", "lock.release", "lock.acquire", "del", "lock.release"]);
}

#[test]
fn the_end_of_a_session_raises_set_and_expire() {
    let mut all = Subscriber::with("KA", &["margin-ms", "400"]);
    let mut holder = all.server.conn();
    holder.int(&["LOCK.ACQUIRE", "k", "EX", "60", "SESSION"]);
    let mut waiter = all.waiter(&["DETAILS"]);
    all.received();
    drop(holder);
    until("the session has ended", || (number(&mut all.conn, "sessions_ended") == 1).then_some(()));
    all.gets(&["set", "expire"]);
    // The successor finds the lock expired after the margin.
    assert!(!waiter.read().list()[1].is_nil());
    all.gets(&["set", "expire", "lock.lapse", "lock.acquire"]);
}

/// `hostile` tests every refusal.
#[test]
fn waits_places_and_inspections_publish_nothing() {
    let mut all = Subscriber::to("KA");
    all.hold();
    all.received();
    let wait = ["LOCK.ACQUIRE", "k", "EX", "5", "WAIT", "20", "ID", "8"];
    for args in [&wait[..], &["LOCK.CANCEL", "k", "8"], &["LOCK.TOP"], &["LOCK.INFO", "k", "FULL"]] {
        all.conn.execute(args);
        assert_eq!(all.received(), [""; 0], "{args:?}");
    }
}

#[test]
fn each_event_has_its_usual_class() {
    for (classes, expected) in [
        ("Kd", &["lock.acquire", "lock.lapse", "lock.acquire", "lock.extend", "lock.release"][..]),
        ("K$", &["set", "set", "set"]),
        ("Kg", &["expire", "expire", "expire", "del"]),
        ("Kxe", &[]),
        ("", &[]),
    ] {
        let mut some = Subscriber::to(classes);
        some.let_expire();
        let token = some.hold();
        assert_eq!(some.conn.int(&["LOCK.EXTEND", "k", &token, "EX", "9"]), 1);
        assert_eq!(some.conn.int(&["LOCK.RELEASE", "k", &token]), 1);
        some.gets(expected);
    }
}

#[test]
fn events_name_their_key_and_database_as_bytes() {
    let mut all = Subscriber::to("EA");
    let name = b"a\0b \xff";
    all.conn.ok(&["SELECT", "3"]);
    let mut subscriber = all.server.conn();
    subscriber.execute(&["SUBSCRIBE", "__keyevent@3__:lock.acquire"]);
    assert!(all.conn.execute(&[&b"LOCK.ACQUIRE"[..], name, b"EX", b"5"]).int() > 0);
    let message = subscriber.read();
    assert_eq!(message.list()[2], testkit::Reply::Text(name.to_vec()));
}
