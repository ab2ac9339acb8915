//! Claiming: until the claim the grant has no holder in the key, and only this server knows its attempt.

use super::{waiting, Queue};
use crate::wire::fixture::value;
use testkit::{server_time_us, timestamp_us, Reply};

/// An attempt that was notified. Returns the token of its grant.
fn granted(queue: &mut Queue, more: &[&str]) -> i64 {
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", more);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    queue.locks.conn.lock("k", "token").int()
}

#[test]
fn a_lease_runs_from_the_claim() {
    let Some(mut queue) = Queue::with(&["claim-ms", "5000"]) else { return };
    let before = server_time_us(&mut queue.locks.conn);
    let token = granted(&mut queue, &["OWNER", "alice"]);
    let unclaimed = value(&mut queue.locks.conn, "k");
    assert_eq!((unclaimed.token, unclaimed.rest.as_str()), (token, ""), "no ID and no owner");
    let end = unclaimed.timestamp_us - 5_000_000;
    assert!((before..=server_time_us(&mut queue.locks.conn)).contains(&end), "{end}");
    super::pass(&mut queue.locks.conn, 50);
    let from = server_time_us(&mut queue.locks.conn);
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "OWNER", "alice", "NOTIFY", "c"];
    assert_eq!(queue.execute(&ask).int(), token);
    let claimed = value(&mut queue.locks.conn, "k");
    assert_eq!((claimed.token, claimed.rest.as_str()), (token, "0000000000000000007 alice"));
    let start = claimed.timestamp_us - 30_000_000;
    assert!((from..=server_time_us(&mut queue.locks.conn)).contains(&start), "{start}");
    queue.locks.assert_holds(token);
    // Sending it again gets the same reply.
    assert_eq!(queue.execute(&ask).int(), token);
    assert_eq!((queue.info("lock_claims"), queue.info("lock_unclaimed"), queue.locks.waiters()), (1, 0, 0));
    // The time to claim has passed, and the attempt still holds the lock.
    queue.subscriber.gets_nothing();
    queue.locks.release(token);
}

#[test]
fn any_command_with_its_id_is_a_claim() {
    let claim = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    for more in [&[][..], &["WAIT", "30000"], &["WAIT", "1", "NOTIFY", "another"], &["SESSION"], &["OWNER", "bob"]] {
        let Some(mut queue) = Queue::start() else { return };
        let token = granted(&mut queue, &[]);
        let mut other = queue.locks.server.conn();
        assert_eq!(other.execute(&[&claim[..], more].concat()), Reply::Int(token), "{more:?}");
        queue.locks.assert_holds(token);
    }
    let Some(mut queue) = Queue::start() else { return };
    let token = granted(&mut queue, &[]);
    let replies = queue.locks.in_one_turn(&[&["MULTI"], &claim, &["EXEC"]]);
    assert_eq!(replies[2], Reply::List(vec![Reply::Int(token)]));
    let Some(mut queue) = Queue::start() else { return };
    let token = granted(&mut queue, &[]);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 30000, 'ID', 7)";
    assert_eq!(queue.execute(&["EVAL", script, "1", "k"]), Reply::Int(token));
}

#[test]
fn its_details_name_the_predecessor_of_the_grant() {
    let Some(mut queue) = Queue::start() else { return };
    let dead = queue.hold_until(&["OWNER", "bob"], |queue| queue.ask("7"));
    queue.subscriber.gets("granted 7 k");
    for _ in 0..2 {
        let details = queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7", "DETAILS"]);
        let [token, overdue, previous, owner] = details.list() else { panic!("{details:?}") };
        assert!(token.int() > dead);
        assert!((0..5_000).contains(&overdue.int()), "{details:?}");
        assert_eq!((previous, owner), (&Reply::Int(dead), &Reply::Text(b"bob".into())));
    }
    assert_eq!(queue.info("lock_recoveries"), 1);
}

#[test]
fn before_the_claim_nobody_holds_anything() {
    let Some(mut queue) = Queue::with(&["claim-ms", "20000"]) else { return };
    let token = granted(&mut queue, &["OWNER", "alice"]).to_string();
    let before = queue.value();
    assert_eq!(queue.execute(&["LOCK.CHECK", "k", &token]).int(), 0);
    assert_eq!(queue.execute(&["LOCK.EXTEND", "k", &token, "PX", "60000"]).int(), 0);
    assert_eq!(queue.execute(&["LOCK.MEXTEND", "1", "k", &token, "PX", "60000"]).int(), 0);
    let info = queue.execute(&["LOCK.INFO", "k"]);
    assert_eq!(info.field("state").text(), "held");
    assert_eq!([info.field("id"), info.field("owner"), info.field("session")], [Reply::Nil, Reply::Nil, Reply::Nil]);
    assert_eq!(info.field("lease-ms").int(), 0);
    assert!((10_000..=20_000).contains(&info.field("free-in-ms").int()), "{info:?}");
    // A stranger, and a forged ID without an attempt.
    assert!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000"]).is_nil());
    assert!(queue.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "8"]).is_nil());
    assert!(queue.execute(&["LOCK.RECOVER", "k", "PX", "30000", "ID", "7"]).is_nil());
    assert_eq!(queue.value(), before);
    assert_eq!(queue.claim("7").to_string(), token);
}

#[test]
fn an_unclaimed_grant_can_be_released_by_its_token() {
    for command in [&["LOCK.RELEASE", "k"][..], &["LOCK.MRELEASE", "1", "k"]] {
        let Some(mut queue) = Queue::start() else { return };
        let token = granted(&mut queue, &[]).to_string();
        queue.ask("8");
        assert_eq!(queue.execute(&[command, &[&token]].concat()).int(), 1);
        queue.subscriber.gets("granted 8 k");
        queue.subscriber.gets("cancelled 7 k");
        let token = queue.claim("8");
        queue.locks.release(token);
        assert_eq!(queue.execute(&["EXISTS", "k"]).int(), 0, "{command:?}");
    }
}

/// Changes to the value before the claim.
const CHANGES: [&[&str]; 5] = [
    &["DEL", "k"],
    &["SET", "k", "foreign"],
    &["SET", "k", "9999999999.0000001763710000482913"],
    &["APPEND", "k", "0000000000000000008"],
    &["RENAME", "k", "elsewhere"],
];

#[test]
fn a_changed_grant_has_ended_and_its_attempt_keeps_its_place() {
    for change in CHANGES {
        let Some(mut queue) = Queue::start() else { return };
        queue.locks.server.allow_silent_changes();
        granted(&mut queue, &[]);
        // In one iteration, so that nobody is served in the meantime; then another client has it.
        let taken = ["SET", "k", "foreign"];
        let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"];
        let replies = queue.locks.in_one_turn(&[change, &taken, &ask]);
        assert_eq!(replies[2], waiting(), "{change:?}");
        assert_eq!(queue.value(), "foreign", "{change:?}");
        queue.ask("8");
        queue.subscriber.gets_nothing();
        assert_eq!(queue.execute(&["DEL", "k"]).int(), 1);
        queue.takes_its_turn("7");
        queue.takes_its_turn("8");
    }
}

#[test]
fn a_changed_unclaimed_grant_is_not_passed_on() {
    let Some(mut queue) = Queue::with(&["claim-ms", "100"]) else { return };
    queue.locks.server.allow_silent_changes();
    granted(&mut queue, &[]);
    let mut value = queue.value();
    // The same token with a different timestamp.
    let end = timestamp_us(&value) + 60_000_000;
    value.replace_range(..17, &format!("{}.{:06}", end / 1_000_000, end % 1_000_000));
    queue.locks.conn.ok(&["SET", "k", &value]);
    queue.ask("8");
    testkit::until("its time has passed", || (queue.info("lock_unclaimed") == 1).then_some(()));
    queue.subscriber.gets_nothing();
    assert_eq!(queue.value(), value);
}

#[test]
fn a_claim_of_another_kind_is_an_error() {
    let Some(mut queue) = Queue::start() else { return };
    let token = granted(&mut queue, &[]);
    let before = queue.value();
    for share in [&["SHARED"][..], &["LIMIT", "3"]] {
        let reply = queue.execute(&[&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"], share].concat());
        assert!(reply.error().starts_with("ERR id holds this lock without SHARED and LIMIT"), "{reply:?}");
    }
    assert_eq!(queue.value(), before);
    assert_eq!(queue.claim("7"), token);
}
