//! Several holders and several keys in a cluster: a slot that moves while clients of all kinds wait in it, and a
//! replica that becomes master and keeps the old master's tokens, leases and limits.

use super::failover::until_replicated;
use super::nodes::{Move, Node};
use super::waiters::{fail_over, waiting, Ends, Waiters, MANY};
use super::{in_memory, with_aof, Turn};
use testkit::{until, Conn, Reply};

/// `{tag}k` has three holders, one of which allows two others; one client holds `{tag}a` and `{tag}b`.
struct Held {
    k: String,
    keys: [String; 2],
    tokens: Vec<String>,
    all: String,
    /// The client whose session holds one of them.
    _holder: Conn,
}

impl Held {
    fn at(node: &Node, tag: &str) -> Self {
        let mut conn = node.conn();
        let k = format!("{{{tag}}}k");
        let keys = ["a", "b"].map(|name| format!("{{{tag}}}{name}"));
        let take = |conn: &mut Conn, share: &[&str]| {
            conn.int(&[&["LOCK.ACQUIRE", &k, "EX", "600"], share].concat()).to_string()
        };
        let tokens = vec![
            take(&mut conn, &["LIMIT", "3", "ID", "7", "OWNER", "first"]),
            take(&mut conn, &["SHARED", "OWNER", "second"]),
            take(&mut conn, &["LIMIT", "3", "SESSION"]),
        ];
        let all = conn.int(&["LOCK.MACQUIRE", "2", &keys[0], &keys[1], "EX", "600", "OWNER", "all"]).to_string();
        Self { k, keys, tokens, all, _holder: conn }
    }

    fn set(&self, conn: &mut Conn) -> Reply {
        conn.execute(&["ZRANGE", &self.k, "0", "-1", "WITHSCORES"])
    }

    /// Asserts that every grant of the old master is valid here, and that nothing more is granted.
    fn assert_good(&self, conn: &mut Conn) {
        let info = conn.execute(&["LOCK.INFO", &self.k, "FULL"]);
        let holders = info.field("holders");
        let tokens: Vec<String> = holders.list().iter().map(|holder| holder.field("token").int().to_string()).collect();
        assert_eq!(tokens, self.tokens);
        assert_eq!(holders.list()[0].field("owner").text(), "first");
        assert!(holders.list()[2].field("session").is_nil(), "a session does not move with its lock");
        for token in &self.tokens {
            assert!(conn.int(&["LOCK.CHECK", &self.k, token]) > 400_000);
        }
        let limited = ["LOCK.ACQUIRE", &self.k, "EX", "600", "LIMIT", "3"];
        assert!(conn.execute(&limited).is_nil(), "the limit holds");
        assert!(conn.execute(&["LOCK.ACQUIRE", &self.k, "EX", "600"]).is_nil());
        let again = conn.int(&[&limited[..], &["ID", "7"]].concat()).to_string();
        assert_eq!(again, self.tokens[0], "the same attempt");
        let [a, b] = &self.keys;
        assert!(conn.execute(&["LOCK.MACQUIRE", "2", a, &self.k, "EX", "5"]).is_nil());
        assert_eq!(conn.int(&["LOCK.MEXTEND", "2", a, b, &self.all, "EX", "500"]), 1);
        // Releasing one token admits one more holder.
        assert_eq!(conn.int(&["LOCK.RELEASE", &self.k, &self.tokens[1]]), 1);
        let next = conn.int(&limited).to_string();
        assert!(next > self.all, "a key's tokens grow");
        assert!(conn.execute(&limited).is_nil());
        assert_eq!(conn.int(&["LOCK.MRELEASE", "2", a, b, &self.all]), 2);
        for token in [&self.tokens[0], &self.tokens[2], &next] {
            assert_eq!(conn.int(&["LOCK.RELEASE", &self.k, token]), 1);
        }
    }
}

/// A hundred waiters: exclusive, shared, at their limit, and for several keys, some of them free.
fn wait_many(node: &Node, held: &Held, tag: &str) -> Waiters {
    let free = format!("{{{tag}}}free");
    let [a, b] = &held.keys;
    let conns: Vec<Conn> = (0..MANY)
        .map(|n| {
            let mut conn = node.conn();
            let id = (1_000 + n).to_string();
            let mut command = match n % 5 {
                // The first of them excludes sharing clients.
                0 => vec!["LOCK.ACQUIRE", &held.k],
                1 => vec!["LOCK.ACQUIRE", &held.k, "SHARED"],
                2 => vec!["LOCK.ACQUIRE", &held.k, "LIMIT", "3"],
                3 => vec!["LOCK.MACQUIRE", "3", &free, &held.k, a],
                _ => vec!["LOCK.MACQUIRE", "2", b, &free],
            };
            command.extend(["PX", "60000", "WAIT", "120000"]);
            if n % 3 == 0 {
                command.extend(["ID", &id]);
            }
            if n % 2 == 0 {
                command.push("SESSION");
            }
            conn.send(&command);
            if n == 0 {
                until("the first waits", || (waiting(node, &held.k) == 1).then_some(()));
            }
            conn
        })
        .collect();
    let all = i64::try_from(MANY).unwrap();
    until("all wait", || (node.number(&["INFO", "lock"], "lock_waiters") == Some(all)).then_some(()));
    Waiters(conns)
}

#[test]
fn a_moving_slot_redirects_waiters_and_keeps_all_holders() {
    let cluster = in_memory();
    let tag = "several-move";
    let from = cluster.master_of(&format!("{{{tag}}}"));
    let to = cluster.other_master(&format!("{{{tag}}}"));
    let held = Held::at(from, tag);
    let before = held.set(&mut from.conn());
    let waiters = wait_many(from, &held, tag);
    let counters = || ["lock_hand_offs", "lock_grants"].map(|field| from.number(&["INFO", "lock"], field));
    let counted = counters();
    let moving = Move::begin(from, to, &held.k);
    // MIGRATE deletes the keys here, one by one: all of them look free to the waiters.
    moving.migrate();
    let ends = waiters.end();
    moving.end();
    assert_eq!(ends, Ends { unblocked: MANY, ..Ends::default() });
    assert_eq!(counters(), counted, "nobody was granted what has left");
    assert_eq!(from.number(&["INFO", "lock"], "lock_waiters"), Some(0));
    assert_eq!(from.conn().execute(&["CLUSTER", "COUNTKEYSINSLOT", &moving.slot.to_string()]), Reply::Int(0));
    let mut conn = to.conn();
    assert_eq!(held.set(&mut conn), before);
    // A redirected client sends its command to the new owner, and joins the queue there.
    let mut again = to.conn();
    again.send(&["LOCK.MACQUIRE", "3", &held.k, &held.keys[0], &held.keys[1], "PX", "60000", "WAIT", "60000"]);
    until("it waits", || (waiting(to, &held.k) == 1).then_some(()));
    held.assert_good(&mut conn);
    let token = again.read().int().to_string();
    assert_eq!(conn.int(&["LOCK.MRELEASE", "3", &held.k, &held.keys[0], &held.keys[1], &token]), 3);
    from.assert_sound();
    to.assert_sound();
}

#[test]
fn a_migrating_slot_grants_several_keys_only_together() {
    let cluster = in_memory();
    let tag = "several-migrating";
    let [a, b] = ["a", "b"].map(|name| format!("{{{tag}}}{name}"));
    let (from, to) = (cluster.master_of(&a), cluster.other_master(&a));
    let mut here = from.conn();
    let [own_a, own_b] = [&a, &b].map(|key| here.int(&["LOCK.ACQUIRE", key, "PX", "60000"]).to_string());
    let mut waiter = from.conn();
    waiter.send(&["LOCK.MACQUIRE", "2", &a, &b, "PX", "60000", "WAIT", "60000"]);
    until("it waits", || (waiting(from, &a) == 1).then_some(()));
    let moving = Move::begin(from, to, &a);
    // One key has left: nobody holds it here.
    let port = to.port.to_string();
    here.ok(&["MIGRATE", "127.0.0.1", &port, &b, "0", "10000"]);
    // The waiter waits for the keys that are here, and finds out that the other has left once these are free.
    let counters = || ["lock_hand_offs", "lock_grants"].map(|field| from.number(&["INFO", "lock"], field));
    let counted = counters();
    assert_eq!(here.int(&["LOCK.RELEASE", &a, &own_a]), 1);
    let ends = Waiters(vec![waiter]).end();
    assert_eq!(ends, Ends { unblocked: 1, ..Ends::default() });
    assert_eq!(counters(), counted, "not even one of its keys was granted");
    assert!(here.execute(&["EXISTS", &a]).error().starts_with("ASK "), "nobody holds it");
    let reply = here.execute(&["LOCK.MACQUIRE", "2", &a, &b, "PX", "60000"]);
    // Before 7.0 the server replies ASK.
    let is_sent_on = ["TRYAGAIN ", "ASK "].iter().any(|code| reply.error().starts_with(code));
    assert!(is_sent_on, "{reply:?}");
    moving.migrate();
    moving.end();
    let mut there = to.conn();
    assert_eq!(there.int(&["LOCK.RELEASE", &b, &own_b]), 1);
    assert_eq!(there.int(&["EXISTS", &a]), 0);
    from.assert_sound();
    to.assert_sound();
}

/// Most servers look only at the first key of these commands. The module looks at the others, with their answers.
#[test]
fn a_moving_slot_serves_several_keys_only_where_all_are() {
    let cluster = in_memory();
    let tag = "several-moving";
    let [a, b] = ["a", "b"].map(|name| format!("{{{tag}}}{name}"));
    let (from, to) = (cluster.master_of(&a), cluster.other_master(&a));
    let mut here = from.conn();
    let own = here.int(&["LOCK.ACQUIRE", &a, "PX", "60000"]).to_string();
    let moving = Move::begin(from, to, &a);
    let calls = |[first, second]: [&str; 2]| {
        [
            vec!["LOCK.MACQUIRE", "2", first, second, "PX", "60000"],
            vec!["LOCK.MEXTEND", "2", first, second, &own, "PX", "60000"],
            vec!["LOCK.MRELEASE", "2", first, second, &own],
        ]
        .map(|call| call.into_iter().map(String::from).collect::<Vec<_>>())
    };
    let is_refused = |reply: &Reply| {
        // Before 7.0 the server replies ASK.
        ["TRYAGAIN ", "ASK "].iter().any(|code| matches!(reply, Reply::Error(text) if text.starts_with(code)))
    };
    let execute = |conn: &mut Conn, call: &[String]| conn.execute(&call.iter().map(String::as_str).collect::<Vec<_>>());
    // One key is here, the other nowhere.
    for call in [calls([&a, &b]), calls([&b, &a])].concat() {
        let reply = execute(&mut here, &call);
        assert!(is_refused(&reply), "{call:?}: {reply:?}");
        let mut there = to.conn();
        there.ok(&["ASKING"]);
        let reply = execute(&mut there, &call);
        assert!(is_refused(&reply), "{call:?}: {reply:?}");
    }
    assert!(here.int(&["LOCK.CHECK", &a, &own]) > 0);
    // Once both are there, a client that was sent there is served.
    here.ok(&["MIGRATE", "127.0.0.1", &to.port.to_string(), &a, "0", "10000"]);
    let mut there = to.conn();
    there.ok(&["ASKING"]);
    assert!(there.int(&["LOCK.ACQUIRE", &b, "PX", "60000"]) > 0);
    for call in [calls([&a, &b]), calls([&b, &a])].concat() {
        assert!(is_refused(&execute(&mut here, &call)), "{call:?}");
    }
    there.ok(&["ASKING"]);
    assert_eq!(there.int(&["LOCK.MRELEASE", "2", &a, &b, &own]), 1);
    moving.migrate();
    moving.end();
    from.assert_sound();
    to.assert_sound();
}

fn failover_with_several(cluster: &Turn, ways: &[&[&str]]) {
    for (n, way) in ways.iter().enumerate() {
        let tag = format!("several-failover-{n}");
        let old = cluster.master_of(&format!("{{{tag}}}"));
        let held = Held::at(old, &tag);
        let before = held.set(&mut old.conn());
        until_replicated(old);
        let (old, new) = fail_over(cluster, wait_many(old, &held, &tag), &held.k, way);
        let mut conn = new.conn();
        assert_eq!(held.set(&mut conn), before, "{way:?}");
        held.assert_good(&mut conn);
        until_replicated(new);
        cluster.wait_until_healthy();
        old.assert_sound();
        new.assert_sound();
    }
}

#[test]
fn a_promoted_replica_has_all_holders() {
    failover_with_several(&in_memory(), &[&[], &["TAKEOVER"]]);
}

#[test]
fn a_promoted_replica_with_an_aof_has_all_holders() {
    failover_with_several(&with_aof(), &[&[]]);
}
