//! The replication stream: effects as plain SET and DEL with absolute times, never a LOCK.* command, and nothing at all
//! if nothing changed (`hostile` tries every refusal).

mod passing;

use testkit::{expire_at_ms, server_time_us, timestamp_us, until, Conn, Reply, Server};

/// The module's default retention.
const RETENTION_MS: i64 = 60_000;

/// A server's replication stream, read up to marks that are written into it.
pub struct Stream {
    feed: Conn,
    marker: Conn,
    marks: u32,
}

impl Stream {
    pub fn of(server: &Server) -> Self {
        Self::over(server.replication_stream(), server)
    }

    /// The stream of a connection that has read the RDB.
    pub fn over(feed: Conn, server: &Server) -> Self {
        Stream { feed, marker: server.conn(), marks: 0 }
    }

    /// All commands since the last call. A mark written now comes last, so nothing is still in flight.
    pub fn take(&mut self) -> Vec<Vec<String>> {
        self.marks += 1;
        let mark = ["SET".to_string(), "mark".into(), self.marks.to_string()];
        self.marker.ok(&mark);
        let mut commands = Vec::new();
        loop {
            let command: Vec<String> = self.feed.read().list().iter().map(Reply::text).collect();
            if command == mark {
                return unwrapped(commands);
            }
            // PING is the master's heartbeat, and SELECT the database of the following commands.
            if !["PING", "SELECT"].iter().any(|name| command[0].eq_ignore_ascii_case(name)) {
                commands.push(command);
            }
        }
    }
}

/// The commands without the MULTI and EXEC that servers before 7.0 put around a single command, or around nothing, to
/// no effect.
pub fn unwrapped(commands: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let mut kept: Vec<Vec<String>> = Vec::new();
    for command in commands {
        let begin = kept.iter().rposition(|command| command[0] == "MULTI");
        match begin {
            Some(begin) if command[0] == "EXEC" && kept.len() - begin <= 2 => {
                kept.remove(begin);
            }
            _ => kept.push(command),
        }
    }
    kept
}

pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// The SET that must have replicated `value`; with its expiry if there is a retention.
fn set(key: &str, value: &str, retention_ms: Option<i64>) -> Vec<String> {
    let mut command = words(&["SET", key, value]);
    if let Some(retention_ms) = retention_ms {
        // Rounded up: the key must not vanish before its timestamp has passed.
        let pxat = (timestamp_us(value) + 999).div_euclid(1000) + retention_ms;
        command.extend(["PXAT".into(), pxat.to_string()]);
    }
    command
}

/// The SET that must have replicated the current value of `key`.
fn set_of(conn: &mut Conn, key: &str, retention_ms: Option<i64>) -> Vec<String> {
    set(key, &conn.text(&["GET", key]), retention_ms)
}

#[test]
fn every_write_replicates_as_an_effect() {
    let server = Server::start();
    let (mut conn, mut stream) = (server.conn(), Stream::of(&server));

    let token = conn.int(&["LOCK.ACQUIRE", "a", "PX", "30000", "ID", "77", "OWNER", "worker-1"]).to_string();
    let granted = set_of(&mut conn, "a", Some(RETENTION_MS));
    assert!(granted[2].ends_with(" worker-1"), "{granted:?}");
    assert_eq!(stream.take(), [granted]);

    assert_eq!(conn.int(&["LOCK.EXTEND", "a", &token, "EX", "60"]), 1);
    let extended = set_of(&mut conn, "a", Some(RETENTION_MS));
    assert_eq!(stream.take(), [extended]);

    let again = conn.int(&["LOCK.ACQUIRE", "a", "EX", "90", "ID", "77"]);
    assert_eq!(again.to_string(), token);
    let longer = set_of(&mut conn, "a", Some(RETENTION_MS));
    assert_eq!(stream.take(), [longer]);

    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &token]), 1);
    assert_eq!(stream.take(), [words(&["DEL", "a"])]);

    conn.ok(&["SET", "a", "1700000000.5"]);
    assert_eq!(conn.execute(&["LOCK.RECOVER", "a", "EX", "30"]).list().len(), 4);
    let recovered = set_of(&mut conn, "a", Some(RETENTION_MS));
    assert_eq!(stream.take(), [words(&["SET", "a", "1700000000.5"]), recovered]);
}

#[test]
fn takeovers_and_late_releases_replicate_as_effects() {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    let (mut conn, mut stream) = (server.conn(), Stream::of(&server));
    conn.int(&["LOCK.ACQUIRE", "a", "PX", "1"]);
    let first = set_of(&mut conn, "a", Some(RETENTION_MS));
    let late = until("the lease has expired", || match conn.execute(&["LOCK.ACQUIRE", "a", "PX", "1"]) {
        Reply::Int(token) => Some(token.to_string()),
        _ => None,
    });
    let second = set_of(&mut conn, "a", Some(RETENTION_MS));
    until("the second lease has expired", || (conn.state("a") == "expired").then_some(()));
    assert_eq!(conn.int(&["LOCK.RELEASE", "a", &late]), -1);
    assert_eq!(stream.take(), [first, second, words(&["DEL", "a"])]);
}

#[test]
fn the_expiry_is_the_timestamp_rounded_up_plus_the_retention() {
    for (setting, retention_ms) in [("0", Some(0)), ("1234", Some(1234)), ("-1", None)] {
        let server = Server::with().module_args(&["retention-ms", setting]).start();
        let (mut conn, mut stream) = (server.conn(), Stream::of(&server));
        // Several locks, so that some timestamps have a fraction of a millisecond, which has to be rounded.
        for n in 0..10 {
            let key = format!("k{n}");
            let token = conn.int(&["LOCK.ACQUIRE", &key, "EX", "30"]).to_string();
            let granted = set_of(&mut conn, &key, retention_ms);
            assert_eq!(conn.int(&["LOCK.EXTEND", &key, &token, "EX", "60"]), 1);
            let extended = set_of(&mut conn, &key, retention_ms);
            let native = retention_ms.map_or("-1", |_| &extended[4]);
            assert_eq!(expire_at_ms(&mut conn, &key), native.parse::<i64>().unwrap());
            assert_eq!(stream.take(), [granted, extended], "retention-ms {setting}");
        }
    }
}

#[test]
fn a_retained_lock_replicates_as_del_before_its_successor() {
    let server = Server::with().module_args(&["margin-ms", "0", "retention-ms", "0"]).start();
    let (mut conn, mut stream) = (server.conn(), Stream::of(&server));
    // Keeps the key in memory until ACQUIRE finds it.
    conn.ok(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    conn.int(&["LOCK.ACQUIRE", "a", "PX", "1"]);
    let first = stream.take();
    let end_ms: i64 = first[0][4].parse().unwrap();
    until("the retention has ended", || (server_time_us(&mut conn) / 1000 > end_ms).then_some(()));
    let details = conn.execute(&["LOCK.ACQUIRE", "a", "EX", "30", "DETAILS"]);
    assert!(details.list()[1].is_nil(), "a key that is gone leaves no predecessor: {details:?}");
    let mut after = stream.take();
    after.retain(|command| !matches!(command[0].as_str(), "MULTI" | "EXEC"));
    assert_eq!(first.len(), 1);
    assert_eq!(after.len(), 2, "{after:?}");
    // The server's own command for an expired key can be either.
    assert!(matches!(after[0][0].as_str(), "DEL" | "UNLINK") && after[0][1] == "a", "{after:?}");
    assert_eq!(after[1], set_of(&mut conn, "a", Some(0)));
}

#[test]
fn under_a_volatile_policy_locks_get_no_expiry() {
    let policy = |name| Server::with().args(&["--maxmemory-policy", name]).start();
    let volatile = ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"];
    for name in volatile {
        let server = policy(name);
        let (mut conn, mut stream) = (server.conn(), Stream::of(&server));
        let token = conn.int(&["LOCK.ACQUIRE", "a", "EX", "30"]).to_string();
        let granted = set_of(&mut conn, "a", None);
        assert_eq!(conn.int(&["LOCK.EXTEND", "a", &token, "EX", "60"]), 1);
        let extended = set_of(&mut conn, "a", None);
        assert_eq!(conn.int(&["PTTL", "a"]), -1);
        assert_eq!(stream.take(), [granted, extended], "{name}");
        conn.int(&["LOCK.ACQUIRE", "shared", "EX", "30", "SHARED"]);
        assert_eq!(conn.int(&["PTTL", "shared"]), -1, "{name}");
    }
    // The other policies leave the expiry alone, or evict without looking at it.
    for name in ["noeviction", "allkeys-lru"] {
        let server = policy(name);
        let mut conn = server.conn();
        conn.int(&["LOCK.ACQUIRE", "a", "EX", "30"]);
        assert!(conn.int(&["PTTL", "a"]) > 60_000, "{name}");
    }
}

#[test]
fn a_policy_changed_while_running_applies_to_later_grants() {
    let server = Server::start();
    let mut conn = server.conn();
    conn.int(&["LOCK.ACQUIRE", "shared", "EX", "60", "SHARED"]);
    for (policy, expires) in [("volatile-lru", false), ("noeviction", true), ("volatile-ttl", false)] {
        conn.ok(&["CONFIG", "SET", "maxmemory-policy", policy]);
        // They follow at once if the server raises an event for the change; before 7.0, a little later.
        until(&format!("grants follow {policy}"), || {
            conn.execute(&["DEL", "a"]);
            let token = conn.int(&["LOCK.ACQUIRE", "a", "EX", "30"]).to_string();
            let granted = conn.int(&["PTTL", "a"]);
            assert_eq!(conn.int(&["LOCK.EXTEND", "a", &token, "EX", "30"]), 1);
            let extended = conn.int(&["PTTL", "a"]);
            // A set of holders gets or loses its expiry at the next change.
            let token = conn.int(&["LOCK.ACQUIRE", "shared", "EX", "30", "SHARED"]).to_string();
            let shared = conn.int(&["PTTL", "shared"]);
            assert_eq!(conn.int(&["LOCK.RELEASE", "shared", &token]), 1);
            let released = conn.int(&["PTTL", "shared"]);
            ([granted, extended, shared, released].iter().all(|ttl| (*ttl > 60_000) == expires)).then_some(())
        });
    }
}

#[test]
fn a_transaction_replicates_its_effects_as_one() {
    let server = Server::start();
    let mut conn = server.conn();
    let token = conn.int(&["LOCK.ACQUIRE", "a", "EX", "30"]).to_string();
    let gone = conn.int(&["LOCK.ACQUIRE", "gone", "EX", "30"]).to_string();
    let mut stream = Stream::of(&server);
    conn.ok(&["MULTI"]);
    let queued: &[&[&str]] = &[
        &["LOCK.EXTEND", "a", &token, "EX", "60"],
        &["LOCK.CHECK", "a", &token],
        &["LOCK.ACQUIRE", "a", "EX", "60"],
        &["LOCK.ACQUIRE", "b", "EX", "30"],
        &["LOCK.RELEASE", "gone", &gone],
        &["LOCK.RELEASE", "gone", &gone],
    ];
    for command in queued {
        assert_eq!(conn.execute(command), Reply::Status("QUEUED".into()));
    }
    let replies = conn.execute(&["EXEC"]);
    let replies = replies.list();
    assert_eq!((replies[0].int(), replies[4].int(), replies[5].int()), (1, 1, 0));
    assert!(replies[1].int() > 0 && replies[2].is_nil() && replies[3].int() > 0, "{replies:?}");
    assert_eq!(
        stream.take(),
        [
            words(&["MULTI"]),
            set_of(&mut conn, "a", Some(RETENTION_MS)),
            set_of(&mut conn, "b", Some(RETENTION_MS)),
            words(&["DEL", "gone"]),
            words(&["EXEC"]),
        ]
    );
}

#[test]
fn a_script_replicates_its_effects_as_one() {
    let server = Server::start();
    let (mut conn, mut stream) = (server.conn(), Stream::of(&server));
    let script = "local token = redis.call('LOCK.ACQUIRE', KEYS[1], 'EX', 30)
        local value = redis.call('GET', KEYS[1])
        local released = redis.call('LOCK.RELEASE', KEYS[1], token)
        local other = redis.call('LOCK.ACQUIRE', KEYS[2], 'EX', 30)
        local held = redis.call('LOCK.CHECK', KEYS[2], other) > 0
        return {value, released, other, held}";
    let reply = conn.execute(&["EVAL", script, "2", "a", "b"]);
    let reply = reply.list();
    assert_eq!((&reply[1], &reply[3]), (&Reply::Int(1), &Reply::Int(1)));
    assert_eq!(
        stream.take(),
        [
            words(&["MULTI"]),
            set("a", &reply[0].text(), Some(RETENTION_MS)),
            words(&["DEL", "a"]),
            set_of(&mut conn, "b", Some(RETENTION_MS)),
            words(&["EXEC"]),
        ]
    );
    let refused = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'EX', 30)";
    assert!(conn.execute(&["EVAL", refused, "1", "b"]).is_nil());
    assert_eq!(stream.take(), Vec::<Vec<String>>::new());
}
