//! Events of several holders and several keys: zadd, zrem, del and expire like those of the server's own commands,
//! followed by our own.

use super::Subscriber;
use crate::metrics::number;
use testkit::until;

fn share(all: &mut Subscriber, options: &[&str]) -> String {
    all.conn.int(&[&["LOCK.ACQUIRE", "k"], options].concat()).to_string()
}

fn until_over(all: &mut Subscriber, token: &str) {
    until("it has ended", || {
        let holders = all.conn.execute(&["LOCK.INFO", "k", "FULL"]).field("holders");
        let own = holders.list().iter().find(|holder| holder.field("token").int().to_string() == token).cloned();
        own.is_some_and(|own| !own.field("overdue-ms").is_nil()).then_some(())
    });
}

#[test]
fn each_command_that_changes_one_of_several_holders_raises_its_events() {
    let mut all = Subscriber::to("KA");
    let first = share(&mut all, &["EX", "60", "SHARED", "ID", "5"]);
    all.gets(&["zadd", "expire", "lock.acquire"]);
    let second = share(&mut all, &["EX", "30", "LIMIT", "2"]);
    all.gets(&["zadd", "lock.acquire"]);
    assert!(all.conn.execute(&["LOCK.ACQUIRE", "k", "EX", "30", "LIMIT", "2"]).is_nil());
    all.gets(&[]);
    assert_eq!(share(&mut all, &["EX", "90", "SHARED", "ID", "5"]), first);
    all.gets(&["zadd", "expire", "lock.extend"]);
    assert_eq!(share(&mut all, &["EX", "9", "SHARED", "ID", "5"]), first);
    all.gets(&[]);
    assert_eq!(all.conn.int(&["LOCK.EXTEND", "k", &second, "EX", "9"]), 1);
    all.gets(&["zadd", "lock.extend"]);
    assert_eq!(all.conn.int(&["LOCK.CANCEL", "k", "5"]), 1);
    all.gets(&["zrem", "expire", "lock.release"]);
    assert_eq!(all.conn.int(&["LOCK.RELEASE", "k", &second]), 1);
    all.gets(&["zrem", "del", "lock.release"]);
}

#[test]
fn replacing_an_overdue_holder_raises_its_events() {
    let mut all = Subscriber::to("KA");
    let late = share(&mut all, &["PX", "1", "LIMIT", "2"]);
    share(&mut all, &["EX", "60", "LIMIT", "2"]);
    until_over(&mut all, &late);
    all.received();
    share(&mut all, &["EX", "30", "LIMIT", "2"]);
    all.gets(&["zadd", "zrem", "lock.lapse", "lock.acquire"]);
}

#[test]
fn a_shared_hand_off_is_never_seen_without_a_holder() {
    let mut all = Subscriber::to("KA");
    // A different lease from the waiters': within one millisecond the native expiry would not change.
    let token = share(&mut all, &["EX", "30", "SHARED"]);
    let mut waiter = all.waiter(&["LIMIT", "1"]);
    all.received();
    assert_eq!(all.conn.int(&["LOCK.RELEASE", "k", &token]), 1);
    let second = waiter.read().int().to_string();
    all.gets(&["zadd", "zrem", "expire", "lock.release", "lock.acquire"]);
    // From a set to a string.
    let mut waiter = all.waiter(&[]);
    all.received();
    assert_eq!(all.conn.int(&["LOCK.RELEASE", "k", &second]), 1);
    waiter.read().int();
    let events = all.received();
    assert_eq!(events.last().unwrap(), "k lock.acquire", "{events:?}");
    assert!(!events.contains(&"k del".to_string()), "{events:?}");
}

#[test]
fn each_command_that_changes_several_keys_raises_its_events() {
    let mut all = Subscriber::to("KA");
    let keys = ["a", "b"];
    let each = |events: &[&str]| -> Vec<String> {
        let mut events: Vec<_> =
            keys.iter().flat_map(|key| events.iter().map(move |it| format!("{key} {it}"))).collect();
        events.sort();
        events
    };
    let sorted = |mut events: Vec<String>| {
        events.sort();
        events
    };
    let token = all.conn.int(&["LOCK.MACQUIRE", "2", "a", "b", "EX", "60"]).to_string();
    assert_eq!(sorted(all.received()), each(&["set", "expire", "lock.acquire"]));
    assert!(all.conn.execute(&["LOCK.MACQUIRE", "2", "c", "b", "EX", "60"]).is_nil());
    assert_eq!(all.conn.int(&["LOCK.MEXTEND", "2", "c", "b", &token, "EX", "60"]), 0);
    assert_eq!(all.received(), [""; 0]);
    assert_eq!(all.conn.int(&["LOCK.MEXTEND", "2", "a", "b", &token, "EX", "60"]), 1);
    assert_eq!(sorted(all.received()), each(&["set", "expire", "lock.extend"]));
    // A release grants them to a client that waits for them.
    let mut waiter = all.server.conn();
    waiter.send(&["LOCK.MACQUIRE", "2", "b", "a", "EX", "60", "WAIT", "60000"]);
    until("it waits", || (number(&mut all.conn, "waiters") == 1).then_some(()));
    assert_eq!(all.conn.int(&["LOCK.MRELEASE", "3", "a", "b", "c", &token]), 2);
    waiter.read().int();
    assert_eq!(sorted(all.received()), each(&["del", "lock.release", "set", "expire", "lock.acquire"]));
}
