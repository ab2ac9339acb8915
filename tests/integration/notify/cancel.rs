//! LOCK.CANCEL: of one attempt, of all attempts of a channel; and late copies of a cancelled command.

use super::{pass, waiting, Line, Listener};
use crate::kinds::{Kind, Row, KINDS};
use testkit::{Reply, Server};

/// A late command of attempt 7 gets nil, in the shape of a grant.
fn assert_barred(line: &mut Line) {
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    let wait = ["WAIT", "30000"];
    let notify = ["WAIT", "30000", "NOTIFY", "c"];
    for more in [&[][..], &wait, &notify, &["SHARED"], &["LIMIT", "2", "WAIT", "30000"], &["SESSION"]] {
        assert_eq!(line.locks.conn.raw(&[&ask[..], more].concat()), b"$-1\r\n", "{more:?}");
    }
    assert_eq!(line.locks.conn.raw(&[&ask[..], &["DETAILS"], &notify].concat()), b"*-1\r\n");
    let all = ["LOCK.MACQUIRE", "2", "l", "k", "PX", "30000", "WAIT", "30000", "ID", "7", "NOTIFY", "c"];
    assert_eq!(line.locks.conn.raw(&all), b"$-1\r\n");
    assert_eq!(line.call(&["EXISTS", "l"]).int(), 0);
    // Another key and another database are other attempts.
    assert_eq!(line.call(&["LOCK.CANCEL", "l", "8"]).int(), 0);
    let token = line.locks.conn.int(&["LOCK.ACQUIRE", "l", "PX", "30000", "ID", "7"]).to_string();
    assert_eq!(line.call(&["LOCK.RELEASE", "l", &token]).int(), 1);
}

#[test]
fn one_that_waits_is_told_and_its_late_copies_get_nothing() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::start() else { return };
        let token = line.locks.hold();
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        line.ask("8");
        assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 1);
        line.told.hears("cancelled 7 k");
        assert_eq!((line.locks.waiters(), line.info("lock_queued"), line.info("lock_cancels")), (1, 1, 1));
        assert_barred(&mut line);
        assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 0, "once");
        line.locks.release(token);
        line.takes_its_turn("8");
        // The same for a free lock.
        assert_barred(&mut line);
    }
}

#[test]
fn an_unclaimed_grant_passes_on_and_a_late_claim_gets_nothing() {
    for kind in KINDS {
        let _row = Row::of(kind);
        let Some(mut line) = Line::with(&["claim-ms", "20000"]) else { return };
        let token = line.locks.hold();
        line.ask_with(&kind.acquire(&[]), "7", &[]);
        line.ask("8");
        line.locks.release(token);
        line.told.hears("granted 7 k");
        if matches!(kind, Kind::Alone | Kind::Several) {
            assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 1);
            line.told.hears("cancelled 7 k");
            line.told.hears("granted 8 k");
        } else {
            assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 1);
            let heard = [line.told.next(), line.told.next()];
            assert!(heard.contains(&"cancelled 7 k".into()) && heard.contains(&"granted 8 k".into()), "{heard:?}");
        }
        assert_eq!(line.call(&kind.acquire(&["PX", "30000", "ID", "7"])), Reply::Nil);
        let token = line.claim("8");
        line.locks.release(token);
        assert_eq!(kind.exist(&mut line.locks.conn), 0);
    }
}

#[test]
fn a_grant_that_was_claimed_is_over_too() {
    let Some(mut line) = Line::start() else { return };
    let token = line.locks.hold();
    line.ask("7");
    line.ask("8");
    line.locks.release(token);
    line.told.hears("granted 7 k");
    let token = line.claim("7").to_string();
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 1);
    line.told.hears("granted 8 k");
    line.claim("8");
    assert_eq!(line.call(&["LOCK.CHECK", "k", &token]).int(), 0);
    assert_eq!(line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"]), Reply::Nil);
}

#[test]
fn a_call_that_comes_after_it_gets_nothing_although_it_never_stood_in_line() {
    let Some(mut line) = Line::start() else { return };
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    assert_barred(&mut line);
    assert_eq!(line.call(&["EXISTS", "k"]).int(), 0);
}

#[test]
fn after_the_time_of_a_place_the_id_is_a_new_attempt() {
    let Some(mut line) = Line::with(&["place-ms", "100"]) else { return };
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    assert_eq!(line.call(&ask), Reply::Nil);
    pass(&mut line.locks.conn, 110);
    assert!(line.call(&ask).int() > 0);
    assert_eq!(line.info("lock_places"), 0);
    let Some(mut line) = Line::with(&["place-ms", "0"]) else { return };
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    assert!(line.call(&ask).int() > 0, "without places nothing is barred");
}

#[test]
fn each_cancel_bars_its_id_anew() {
    let Some(mut line) = Line::with(&["place-ms", "300"]) else { return };
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7"];
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    pass(&mut line.locks.conn, 200);
    let begun = testkit::server_time_us(&mut line.locks.conn);
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 0);
    pass(&mut line.locks.conn, 200);
    let reply = line.call(&ask);
    // A machine that was busy for longer shows nothing.
    if testkit::server_time_us(&mut line.locks.conn) < begun + 300_000 {
        assert_eq!(reply, Reply::Nil);
    }
}

#[test]
fn of_a_channel_it_ends_all_attempts_in_that_line_and_replies_with_their_number() {
    let Some(mut line) = Line::with(&["claim-ms", "20000"]) else { return };
    let mut other = Listener::of(&line.locks.server, "d");
    let mut sharded = Listener::on(line.locks.server.conn(), "SSUBSCRIBE", "c");
    let token = line.locks.hold();
    let elsewhere = line.locks.conn.int(&["LOCK.ACQUIRE", "l", "PX", "30000"]).to_string();
    for id in ["1", "2"] {
        line.ask(id);
    }
    line.ask_with(&["LOCK.ACQUIRE", "k"], "3", &["SNOTIFY", "c"]);
    line.ask_with(&["LOCK.ACQUIRE", "k"], "4", &["NOTIFY", "d"]);
    line.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "5", &[]);
    line.ask_with(&["LOCK.ACQUIRE", "l"], "6", &[]);
    let mut blocked = line.locks.wait(&[]);
    line.locks.release(token);
    line.told.hears("granted 1 k");
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "CHANNEL", "nobody"]).int(), 0);
    assert_eq!(line.call(&["LOCK.CANCEL", "absent", "channel", "c"]).int(), 0);
    // The unclaimed grant, two waiting attempts, and the one for several keys in this queue.
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "CHANNEL", "c"]).int(), 4);
    let mut heard = [line.told.next(), line.told.next(), line.told.next()];
    heard.sort_unstable();
    assert_eq!(heard, ["cancelled 1 k", "cancelled 2 k", "cancelled 5 k"]);
    sharded.hears("cancelled 3 k");
    other.hears("granted 4 k");
    let token = line.claim("4");
    for id in ["1", "2", "3"] {
        assert_eq!(line.call(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", id]), Reply::Nil, "{id}");
    }
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "CHANNEL", "c"]).int(), 0);
    line.locks.release(token);
    blocked.granted();
    // Another key has its own queue.
    assert_eq!(line.call(&["LOCK.RELEASE", "l", &elsewhere]).int(), 1);
    line.told.hears("granted 6 l");
}

#[test]
fn its_arguments_are_checked() {
    let Some(mut line) = Line::start() else { return };
    let long = "c".repeat(257);
    for (args, error) in [
        (&["LOCK.CANCEL", "k"][..], "ERR wrong number of arguments for 'lock.cancel' command"),
        (&["LOCK.CANCEL", "k", "CHANNEL", "c", "d"], "ERR wrong number of arguments for 'lock.cancel' command"),
        (&["LOCK.CANCEL", "k", "CHANNEL"], "ERR id is not a whole number of 1 to 19 digits"),
        (&["LOCK.CANCEL", "k", "7", "c"], "ERR syntax error: argument 2 is not an option of LOCK.CANCEL"),
        (&["LOCK.CANCEL", "k", "CHANNEL", ""], "ERR channel is not 1 to 256 bytes long"),
        (&["LOCK.CANCEL", "k", "CHANNEL", &long], "ERR channel is not 1 to 256 bytes long"),
    ] {
        assert_eq!(line.call(args).error(), error, "{args:?}");
    }
}

#[test]
fn a_writable_replica_cancels_nothing() {
    let Some(line) = Line::start() else { return };
    let replica = Server::with().args(&["--replica-read-only", "no"]).start();
    replica.replicate(&line.locks.server);
    let mut conn = replica.conn();
    for args in [&["LOCK.CANCEL", "k", "7"][..], &["LOCK.CANCEL", "k", "CHANNEL", "c"]] {
        let reply = conn.call(args);
        assert!(reply.error().starts_with("READONLY "), "{args:?}: {reply:?}");
    }
}

#[test]
fn a_new_attempt_with_another_id_is_not_barred() {
    let Some(mut line) = Line::start() else { return };
    line.locks.hold();
    line.ask("7");
    assert_eq!(line.call(&["LOCK.CANCEL", "k", "7"]).int(), 1);
    line.told.hears("cancelled 7 k");
    let ask = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000", "ID", "8", "NOTIFY", "c"];
    assert_eq!(line.call(&ask), waiting());
}

#[test]
fn an_unclaimed_grant_is_over_within_the_transaction_that_cancels_it() {
    for how in [&["LOCK.CANCEL", "k", "7"][..], &["LOCK.CANCEL", "k", "CHANNEL", "c"]] {
        let Some(mut line) = Line::with(&["claim-ms", "20000"]) else { return };
        let token = line.locks.hold();
        line.ask("7");
        line.locks.release(token);
        line.told.hears("granted 7 k");
        let unclaimed = line.call(&["LOCK.INFO", "k"]).list()[3].int().to_string();
        line.call(&["MULTI"]);
        line.call(how);
        line.call(&["EXISTS", "k"]);
        line.call(&["LOCK.CHECK", "k", &unclaimed]);
        line.call(&["LOCK.EXTEND", "k", &unclaimed, "PX", "30000"]);
        line.call(&["LOCK.ACQUIRE", "k", "PX", "30000"]);
        let replies = line.call(&["EXEC"]);
        let replies: Vec<i64> = replies.list().iter().map(Reply::int).collect();
        assert_eq!(replies[..4], [1, 0, 0, 0], "{how:?}");
        assert!(replies[4] > 0, "a newcomer has the lock");
    }
}
