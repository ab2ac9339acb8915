//! The replies of LOCK.INFO FULL, LOCK.TOP and LOCK.SCAN, and the errors that do not depend on the arguments alone,
//! byte for byte as in parts five, six and eight of the fixture, in RESP2 and RESP3.

use super::address;
use crate::waiting::{Locks, Waiter};
use crate::wire::fixture::{Case, Fixture};
use testkit::{until, Conn, Reply, Server};

/// A connection with the given protocol.
fn connect(server: &Server, resp3: bool) -> Conn {
    let mut conn = server.conn();
    if resp3 {
        assert_eq!(conn.execute(&["HELLO", "3"]).field("proto").int(), 3);
    }
    conn
}

/// The scene of part five; its waiters live until they are dropped.
fn scene(locks: &mut Locks, resp3: bool) -> (Case, Vec<Waiter>, Conn) {
    let mut holder = locks.server.conn();
    let holder_id = holder.int(&["CLIENT", "ID"]).to_string();
    let take = ["LOCK.ACQUIRE", "lock", "EX", "100", "ID", "7", "OWNER", "boss", "SESSION"];
    let token = holder.int(&take).to_string();
    let mut named = locks.server.conn();
    named.ok(&["CLIENT", "SETNAME", "worker-1"]);
    let wait = ["LOCK.ACQUIRE", "lock", "PX", "5000", "WAIT", "100000"];
    let first = locks.wait_on(named, &[&wait[..], &["ID", "0042", "OWNER", "alice"]].concat());
    let second = locks.wait_with(&wait);
    locks.conn.ok(&["SET", "foreign", "true"]);
    let other = locks.wait_with(&["LOCK.ACQUIRE", "foreign", "PX", "5000", "WAIT", "100000"]);

    let has_names = locks.conn.version() >= (false, 7, 0);
    let mut case = Case::start(&mut locks.conn, "lock", &token, resp3);
    case.maps = resp3 && has_names;
    let nil = if resp3 { "_\r\n" } else { "$-1\r\n" };
    case.scene = [
        ("holder_addr", address(&mut locks.conn, &holder_id)),
        ("holder", holder_id),
        ("first", first.id.clone()),
        ("second", second.id.clone()),
        ("first_addr", address(&mut locks.conn, &first.id)),
        ("second_addr", address(&mut locks.conn, &second.id)),
        ("foreign", "foreign".into()),
        ("timestamp", locks.conn.text(&["GET", "lock"])[..17].into()),
        ("worker", if has_names { "$8\r\nworker-1\r\n".into() } else { nil.into() }),
    ]
    .into();
    (case, vec![first, second, other], holder)
}

#[test]
fn info_of_waiters_matches_the_fixture() {
    let fixture = Fixture::load();
    for resp3 in [false, true] {
        let mut locks = Locks::on(Server::start());
        let (case, _waiters, _holder) = scene(&mut locks, resp3);
        let mut conn = connect(&locks.server, resp3);
        for inspection in &fixture.inspect {
            let args = case.args(&inspection.command);
            let reply = conn.raw(&args);
            case.assert_reply(&fixture.inspection_reply(inspection), &reply, &format!("{args:?}, RESP3: {resp3}"));
        }
    }
}

/// The scene of part eight.
fn several(locks: &mut Locks, resp3: bool) -> (Case, Waiter, Conn) {
    let start = Case::start(&mut locks.conn, "lock", "{us-40000000}", resp3);
    let over = start.token.clone();
    let seconds = start.start_us / 1_000_000;
    let (past, future) = ((seconds - 5).to_string(), (seconds + 100).to_string());
    let carol = format!("{over} carol");
    for command in [
        &["ZADD", "lock", &past, &carol][..],
        &["SET", "held", &format!("{future}.000000{over} alice")],
        &["SET", "classic", &future],
        &["SET", "expired", &format!("{past}.000000{over}")],
        &["ZADD", "overdue", &(seconds - 6).to_string(), &(start.start_us - 50_000_000).to_string(), &past, &carol],
        &["SET", "foreign", "true", "PX", "100000"],
        &["ZADD", "scores", &past, &over, "1", "player"],
    ] {
        assert!(!matches!(locks.conn.execute(command), Reply::Error(_)), "{command:?}");
    }
    let mut holder = locks.server.conn();
    let holder_id = holder.int(&["CLIENT", "ID"]).to_string();
    let take = ["LOCK.ACQUIRE", "lock", "EX", "100", "ID", "7", "OWNER", "boss", "SESSION", "LIMIT", "3"];
    let token = holder.int(&take).to_string();
    let last = locks.conn.int(&["LOCK.ACQUIRE", "lock", "EX", "200", "SHARED"]).to_string();
    let sharer = locks.conn.int(&["CLIENT", "ID"]).to_string();
    let first = locks.wait_with(&["LOCK.ACQUIRE", "lock", "PX", "5000", "WAIT", "100000"]);

    let mut case = Case::start(&mut locks.conn, "lock", &token, resp3);
    case.maps = resp3 && locks.conn.version() >= (false, 7, 0);
    // The lease, and the margin.
    let text = |token: &str, lease: i64| {
        let end: i64 = token.parse::<i64>().unwrap() + (lease + 1) * 1_000_000;
        format!("{}.{:06}", end / 1_000_000, end % 1_000_000)
    };
    case.scene = [
        ("holder_addr", address(&mut locks.conn, &holder_id)),
        ("holder", holder_id),
        ("sharer_addr", address(&mut locks.conn, &sharer)),
        ("sharer", sharer),
        ("timestamp", text(&token, 100)),
        ("last_timestamp", text(&last, 200)),
        ("last", last),
        ("over_timestamp", format!("{past}.000000")),
        ("over", over),
        ("first", first.id.clone()),
        ("first_addr", address(&mut locks.conn, &first.id)),
    ]
    .into();
    (case, first, holder)
}

#[test]
fn info_and_top_of_several_holders_match_the_fixture() {
    let fixture = Fixture::load();
    for resp3 in [false, true] {
        let mut locks = Locks::on(Server::start());
        let (case, _waiter, _holder) = several(&mut locks, resp3);
        let mut conn = connect(&locks.server, resp3);
        for inspection in &fixture.several {
            let args = case.args(&inspection.command);
            let reply = conn.raw(&args);
            case.assert_reply(&fixture.inspection_reply(inspection), &reply, &format!("{args:?}, RESP3: {resp3}"));
        }
    }
}

/// Compares replies with the refusals of part six.
fn assert_refusal(fixture: &Fixture, name: &str, reply: &[u8]) {
    assert_eq!(String::from_utf8_lossy(reply), fixture.refusal[name]);
}

#[test]
fn refusals_that_depend_on_others_match_the_fixture() {
    let fixture = Fixture::load();
    for resp3 in [false, true] {
        let mut locks = Locks::with(&["max-waiters", "2"]);
        let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'PX', 5000, 'SESSION')";
        let mut conn = connect(&locks.server, resp3);
        assert_refusal(&fixture, "session", &conn.raw(&["EVAL", script, "1", "k"]));

        conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION"]);
        let wait = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "30000"];
        assert_refusal(&fixture, "deadlock", &conn.raw(&wait));

        let mut earlier = connect(&locks.server, resp3);
        earlier.send(&[&wait[..], &["ID", "7"]].concat());
        locks.until_waiters(1);
        let _newer = locks.wait(&["ID", "7"]);
        assert_refusal(&fixture, "replaced", &error_bytes(&mut earlier));

        let _second = locks.wait(&[]);
        let mut third = connect(&locks.server, resp3);
        assert_refusal(&fixture, "busy", &third.raw(&wait));
        assert_eq!(locks.waiters(), 2);
    }
}

#[test]
fn a_lost_slot_ends_waits_as_in_the_fixture() {
    let fixture = Fixture::load();
    let server = Server::with().args(&["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"]).start();
    let mut locks = Locks::on(server);
    let slot = locks.conn.int(&["CLUSTER", "KEYSLOT", "k"]).to_string();
    // With a second slot the cluster stays up.
    locks.conn.ok(&["CLUSTER", "ADDSLOTS", &slot, "0"]);
    until("the cluster is up", || locks.conn.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(()));
    locks.hold();
    let mut waiter = locks.wait(&[]);
    locks.conn.ok(&["CLUSTER", "DELSLOTS", &slot]);
    assert_refusal(&fixture, "slot_lost", &error_bytes(&mut waiter.conn));
}

/// The bytes of an error reply.
fn error_bytes(conn: &mut Conn) -> Vec<u8> {
    format!("-{}\r\n", conn.read().error()).into_bytes()
}
