//! Bad input gets an error that names the argument, and causes no change, no message and no queued attempt.

use super::{can_publish, Queue, Subscriber};
use testkit::{show, Conn, Server};

/// The state that must not change: the keys, the queue, the replication stream, and the published messages.
struct Still {
    digest: String,
    numbers: Vec<Option<String>>,
    all: Subscriber,
}

impl Still {
    fn of(server: &Server, conn: &mut Conn) -> Self {
        let all = Subscriber::on(server.conn(), "PSUBSCRIBE", "*");
        Self { digest: conn.text(&["DEBUG", "DIGEST"]), numbers: Self::numbers(conn), all }
    }

    fn numbers(conn: &mut Conn) -> Vec<Option<String>> {
        ["lock_queued", "lock_waiters", "lock_places", "lock_grants", "lock_refusals"]
            .map(|field| conn.info("lock", field))
            .into_iter()
            .chain([conn.info("persistence", "rdb_changes_since_last_save")])
            .collect()
    }

    #[track_caller]
    fn assert(&mut self, conn: &mut Conn, what: &str) {
        assert_eq!(conn.text(&["DEBUG", "DIGEST"]), self.digest, "{what}");
        assert_eq!(Self::numbers(conn), self.numbers, "{what}");
        assert!(!self.all.conn.has_reply(), "{what}");
    }
}

#[test]
fn every_bad_argument_is_named_and_changes_nothing() {
    let Some(mut queue) = Queue::start() else { return };
    queue.locks.hold();
    let mut still = Still::of(&queue.locks.server, &mut queue.locks.conn);
    let (long, longest) = ("c".repeat(257), "c".repeat(1 << 20));
    let wait = ["WAIT", "30000", "ID", "7"];
    for (options, error) in [
        (&["NOTIFY", "c"][..], "ERR syntax error: NOTIFY needs WAIT"),
        (&["SNOTIFY", "c"], "ERR syntax error: SNOTIFY needs WAIT"),
        (&["ID", "7", "NOTIFY", "c"], "ERR syntax error: NOTIFY needs WAIT"),
        (&["WAIT", "30000", "NOTIFY", "c"], "ERR syntax error: NOTIFY needs ID"),
        (&["WAIT", "30000", "SNOTIFY", "c"], "ERR syntax error: SNOTIFY needs ID"),
        (
            &["WAIT", "3600001", "ID", "7", "NOTIFY", "c"],
            "ERR wait is longer than 1 hour, the maximum with NOTIFY or SNOTIFY",
        ),
        (
            &["WAIT", "3600001", "ID", "7", "SNOTIFY", "c"],
            "ERR wait is longer than 1 hour, the maximum with NOTIFY or SNOTIFY",
        ),
        (&["WAIT", "-1", "ID", "7", "NOTIFY", "c"], "ERR wait is not a whole number between 0 ms and 10 years"),
        (&["WAIT", "30000", "ID", "x", "NOTIFY", "c"], "ERR id is not a whole number of 1 to 19 digits"),
        (&[&wait[..], &["NOTIFY", ""]].concat(), "ERR channel is not 1 to 256 bytes long"),
        (&[&wait[..], &["SNOTIFY", ""]].concat(), "ERR channel is not 1 to 256 bytes long"),
        (&[&wait[..], &["NOTIFY", &long]].concat(), "ERR channel is not 1 to 256 bytes long"),
        (&[&wait[..], &["NOTIFY", &longest]].concat(), "ERR channel is not 1 to 256 bytes long"),
        (&[&wait[..], &["NOTIFY"]].concat(), "ERR syntax error: NOTIFY has no value"),
        (&[&wait[..], &["SNOTIFY"]].concat(), "ERR syntax error: SNOTIFY has no value"),
        (&[&wait[..], &["NOTIFY", "c", "NOTIFY", "c"]].concat(), "ERR syntax error: NOTIFY is given twice"),
        (&[&wait[..], &["SNOTIFY", "c", "SNOTIFY", "d"]].concat(), "ERR syntax error: SNOTIFY is given twice"),
        (
            &[&wait[..], &["NOTIFY", "c", "SNOTIFY", "c"]].concat(),
            "ERR syntax error: NOTIFY and SNOTIFY exclude each other",
        ),
        (
            &[&wait[..], &["snotify", "c", "notify", "c"]].concat(),
            "ERR syntax error: NOTIFY and SNOTIFY exclude each other",
        ),
    ] {
        for command in [&["LOCK.ACQUIRE", "k", "PX", "30000"][..], &["LOCK.MACQUIRE", "2", "k", "l", "PX", "30000"]] {
            for resp in ["2", "3"] {
                queue.execute(&["HELLO", resp]);
                let args = [command, options].concat();
                let what =
                    args.iter().map(|arg| show(&arg.as_bytes()[..arg.len().min(40)])).collect::<Vec<_>>().join(" ");
                assert_eq!(queue.locks.conn.raw(&args), format!("-{error}\r\n").into_bytes(), "{what}");
                queue.execute(&["HELLO", "2"]);
                still.assert(&mut queue.locks.conn, &what);
            }
        }
    }
    // No other command has the option.
    for args in [
        &["LOCK.RECOVER", "k", "PX", "1", "ID", "7", "NOTIFY", "c"][..],
        &["LOCK.EXTEND", "k", "7", "PX", "1", "NOTIFY", "c"],
        &["LOCK.INFO", "k", "NOTIFY"],
    ] {
        assert!(queue.execute(args).error().starts_with("ERR "), "{args:?}");
    }
    still.assert(&mut queue.locks.conn, "other commands");
}

#[test]
fn channels_of_any_bytes_up_to_256_are_accepted() {
    let Some(mut queue) = Queue::start() else { return };
    for (n, channel) in [&b"\0"[..], b" ", b"\xff\xfe\r\n", &[b'c'; 256], b"*", b"{}"].into_iter().enumerate() {
        let mut subscriber = queue.locks.server.conn();
        subscriber.execute(&[b"SUBSCRIBE", channel]);
        let token = queue.locks.hold();
        let id = n.to_string();
        let ask =
            [b"LOCK.ACQUIRE", &b"k"[..], b"PX", b"9000", b"WAIT", b"9000", b"ID", id.as_bytes(), b"NOTIFY", channel];
        assert_eq!(queue.locks.conn.execute(&ask), super::waiting());
        let rows = queue.execute(&["LOCK.INFO", "k", "FULL"]).field("queue");
        assert_eq!(rows.list()[0].field("channel"), testkit::Reply::Text(channel.to_vec()));
        queue.locks.release(token);
        let message = subscriber.read();
        assert_eq!(message.list()[1], testkit::Reply::Text(channel.to_vec()));
        let token = queue.claim(&id);
        queue.locks.release(token);
    }
}

#[test]
fn a_single_server_accepts_any_sharded_channel() {
    let Some(mut queue) = Queue::start() else { return };
    let mut sharded = Subscriber::on(queue.locks.server.conn(), "SSUBSCRIBE", "{another}slot");
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["SNOTIFY", "{another}slot"]);
    queue.locks.release(token);
    sharded.gets("granted 7 k");
}

#[test]
fn notify_names_the_version_that_it_needs() {
    let (server, mut conn) = Server::connected();
    if can_publish(&mut conn) {
        return;
    }
    let token = conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000"]).to_string();
    let mut still = Still::of(&server, &mut conn);
    for command in [&["LOCK.ACQUIRE", "k"][..], &["LOCK.ACQUIRE", "free"], &["LOCK.MACQUIRE", "2", "k", "l"]] {
        for option in ["NOTIFY", "SNOTIFY"] {
            let reply = conn.execute(&[command, &["PX", "30000", "WAIT", "30000", "ID", "7", option, "c"]].concat());
            assert_eq!(reply.error(), "ERR NOTIFY and SNOTIFY need Redis 7.0 or later, or any version of Valkey");
            still.assert(&mut conn, option);
        }
    }
    assert_eq!(conn.int(&["LOCK.CANCEL", "k", "CHANNEL", "c"]), 0);
    assert_eq!(conn.int(&["LOCK.RELEASE", "k", &token]), 1);
}
