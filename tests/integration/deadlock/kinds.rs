//! DEADLOCK with several holders of a lock, or several wanted locks: refused if no client could continue, and only
//! then.

use super::{LEASE, WAIT};
use crate::kinds::Row;
use crate::metrics::number;
use crate::waiting::Locks;
use testkit::{until, Conn, Reply};

struct Clients(Locks);

impl Clients {
    fn start() -> Self {
        Self(Locks::start())
    }

    fn holds(&self, key: &str, share: &[&str]) -> Conn {
        let mut conn = self.0.server.conn();
        conn.int(&[&["LOCK.ACQUIRE", key, "SESSION"], &LEASE[..], share].concat());
        conn
    }

    /// The client begins to wait.
    fn waits(&mut self, conn: &mut Conn, command: &[&str]) {
        let before = self.waiters();
        conn.send(command);
        until("it waits", || (self.waiters() == before + 1).then_some(()));
    }

    fn waiters(&mut self) -> i64 {
        number(&mut self.0.conn, "waiters")
    }
}

fn wants<'a>(key: &'a str, share: &[&'a str]) -> Vec<&'a str> {
    [&["LOCK.ACQUIRE", key], &LEASE[..], &WAIT, share].concat()
}

fn wants_all<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    let count = ["0", "1", "2", "3"][keys.len()];
    [&["LOCK.MACQUIRE", count], keys, &LEASE, &WAIT].concat()
}

fn is_deadlock(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("DEADLOCK "))
}

#[test]
fn a_writer_behind_readers_closes_a_cycle_with_any() {
    let mut clients = Clients::start();
    let mut first = clients.holds("k", &["SHARED"]);
    let mut second = clients.holds("k", &["SHARED"]);
    second.int(&["LOCK.ACQUIRE", "other", "PX", "600000", "SESSION"]);
    // The first wants to hold exclusively: it would wait for the second, and for itself.
    assert!(is_deadlock(&first.execute(&wants("k", &[]))));
    let mut writer = clients.holds("writers", &[]);
    clients.waits(&mut writer, &wants("k", &[]));
    assert!(is_deadlock(&second.execute(&wants("writers", &[]))));
    // A client that holds nothing cannot close a cycle.
    let mut stranger = clients.0.server.conn();
    clients.waits(&mut stranger, &wants("k", &["SHARED"]));
}

#[test]
fn one_place_that_can_become_free_is_enough() {
    let mut clients = Clients::start();
    let mut stuck = clients.holds("k", &["LIMIT", "2"]);
    let free = clients.holds("k", &["LIMIT", "2"]);
    let mut caller = clients.holds("callers", &[]);
    clients.waits(&mut stuck, &wants("callers", &[]));
    // Either of the two holders could release its place, and one of them is not stuck.
    clients.waits(&mut caller, &wants("k", &["LIMIT", "2"]));
    drop(free);
    assert!(matches!(caller.read(), Reply::Int(_)), "the other client's session has ended");
}

#[test]
fn slots_held_by_waiters_for_the_caller_are_a_cycle() {
    let mut clients = Clients::start();
    let mut caller = clients.holds("callers", &[]);
    let mut stuck = [(); 2].map(|()| clients.holds("k", &["LIMIT", "2"]));
    for stuck in &mut stuck {
        clients.waits(stuck, &wants("callers", &[]));
    }
    assert!(is_deadlock(&caller.execute(&wants("k", &["LIMIT", "2"]))));
    // With a third slot the caller does not even wait.
    caller.int(&["LOCK.ACQUIRE", "k", "PX", "600000", "LIMIT", "3"]);
}

#[test]
fn a_reader_behind_a_writer_waits_for_earlier_readers() {
    let mut clients = Clients::start();
    let mut reader = clients.holds("k", &["SHARED"]);
    let mut caller = clients.holds("callers", &[]);
    let mut writer = clients.0.server.conn();
    clients.waits(&mut writer, &wants("k", &[]));
    clients.waits(&mut reader, &wants("callers", &[]));
    // Without the writer ahead the caller would be admitted at once.
    assert!(is_deadlock(&caller.execute(&wants("k", &["SHARED"]))));
}

#[test]
fn each_of_several_locks_can_close_the_cycle() {
    let mut clients = Clients::start();
    let mut caller = clients.holds("callers", &[]);
    let mut other = clients.holds("b", &[]);
    clients.waits(&mut other, &wants("callers", &[]));
    let all = wants_all(&["a", "b", "c"]);
    assert!(is_deadlock(&caller.execute(&all)));
    assert_eq!(clients.0.conn.int(&["EXISTS", "a", "c"]), 0);
    // A client that waits for several keys can be part of a cycle.
    let mut third = clients.holds("thirds", &[]);
    clients.waits(&mut third, &wants_all(&["a", "b"]));
    assert!(is_deadlock(&caller.execute(&wants("thirds", &[]))));
}

#[test]
fn one_chain_through_every_kind_of_wait_closes() {
    let mut clients = Clients::start();
    // first waits for second among the sharing clients, second for third by its limit, third for the caller and others.
    let mut first = clients.holds("firsts", &[]);
    let mut second = clients.holds("shared", &["SHARED"]);
    let mut third = clients.holds("limited", &["LIMIT", "1"]);
    let mut caller = clients.holds("callers", &[]);
    clients.waits(&mut first, &wants("shared", &[]));
    clients.waits(&mut second, &wants("limited", &["LIMIT", "1"]));
    clients.waits(&mut third, &wants_all(&["free", "callers", "x"]));
    for wish in [wants("firsts", &[]), wants_all(&["other", "firsts"])] {
        assert!(is_deadlock(&caller.execute(&wish)), "{wish:?}");
    }
    // Behind the writer it would also wait for the second, whatever it allows.
    assert!(is_deadlock(&caller.execute(&wants("shared", &["SHARED"]))));
    assert_eq!(clients.waiters(), 3, "no other client is affected");
    assert_eq!(clients.0.conn.int(&["EXISTS", "free", "x", "other"]), 0);
    // A command without WAIT gets its usual reply.
    assert!(caller.execute(&["LOCK.ACQUIRE", "firsts", "PX", "5000", "SHARED"]).is_nil());
    // Once one of them leaves, the wait begins as usual.
    drop(third);
    assert!(matches!(second.read(), Reply::Int(_)));
    clients.waits(&mut caller, &wants("firsts", &["LIMIT", "2"]));
}

#[test]
fn a_holder_that_wants_its_own_lock_again_is_a_cycle() {
    let mut clients = Clients::start();
    let all = wants_all(&["a", "b"]);
    let mut caller = clients.holds("a", &[]);
    assert!(is_deadlock(&caller.execute(&all)));
    let mut sharing = clients.holds("k", &["SHARED"]);
    assert!(is_deadlock(&sharing.execute(&wants_all(&["b", "k"]))));
    // A grant without a session ends with its lease.
    let mut other = clients.0.server.conn();
    other.int(&["LOCK.ACQUIRE", "c", "PX", "600000"]);
    clients.waits(&mut other, &wants_all(&["b", "c"]));
}

#[test]
fn a_waiter_for_several_locks_blocks_none_of_them() {
    let mut clients = Clients::start();
    let _holder = clients.holds("taken", &[]);
    let mut first = clients.holds("firsts", &[]);
    let mut second = clients.holds("b", &[]);
    // It is in b's queue, and reserves nothing there.
    clients.waits(&mut first, &wants_all(&["taken", "b"]));
    let mut stranger = clients.0.server.conn();
    clients.waits(&mut stranger, &wants("b", &[]));
    assert!(is_deadlock(&second.execute(&wants("firsts", &[]))), "the first is behind the second");
    drop(second);
    assert!(matches!(stranger.read(), Reply::Int(_)), "it does not wait for the first");
}

/// An exclusive holder must release before anybody can share the lock.
#[test]
fn a_sharing_caller_waits_for_an_exclusive_holder() {
    for share in [&["SHARED"][..], &["LIMIT", "2"]] {
        let _row = Row::of(share);
        let mut clients = Clients::start();
        let mut first = clients.holds("x", &[]);
        let mut second = clients.holds("y", &[]);
        assert!(is_deadlock(&first.execute(&wants("x", share))), "it waits for itself");
        clients.waits(&mut first, &wants("y", share));
        assert!(is_deadlock(&second.execute(&wants("x", &[]))));
        assert!(is_deadlock(&second.execute(&wants("x", share))));
    }
}

/// A search inspects at most this many edges; then the wait begins unchecked, and is counted.
#[test]
fn a_long_deadlock_search_is_given_up_and_counted() {
    let start = |edges: &str| Clients(Locks::with(&["deadlock-edges", edges]));
    let unchecked = |clients: &mut Clients| number(&mut clients.0.conn, "deadlocks_unchecked");
    // Each waits for the next one's lock: two edges per client, inspected once to see whether they lead back, and once
    // with the keys' values. Opening a key counts as five more.
    let chain = |clients: &mut Clients| {
        let mut conns: Vec<Conn> = (0..10).map(|n| clients.holds(&format!("k{n}"), &[])).collect();
        for (n, conn) in conns.iter_mut().take(9).enumerate() {
            let key = format!("k{}", n + 1);
            clients.waits(conn, &wants(&key, &[]));
        }
        conns
    };
    let mut clients = start("90");
    let mut conns = chain(&mut clients);
    assert!(is_deadlock(&conns[9].execute(&wants("k0", &[]))));
    assert_eq!(unchecked(&mut clients), 0);
    let mut clients = start("89");
    let mut conns = chain(&mut clients);
    clients.waits(&mut conns[9], &wants("k0", &[]));
    assert_eq!(unchecked(&mut clients), 1);
}

/// Holders without a session cannot wait, but have to be read: a hundred locks with 4,000 of them took 0.8 s.
#[test]
fn every_holder_counts_in_a_deadlock_search() {
    let others = "for n = 1, 1000 do redis.call('LOCK.ACQUIRE', KEYS[1], 'PX', 600000, 'SHARED') end";
    for (edges, is_found) in [("900", false), ("1100", true)] {
        let mut clients = Clients(Locks::with(&["deadlock-edges", edges]));
        let mut first = clients.holds("x", &[]);
        let mut second = clients.holds("y", &["SHARED"]);
        assert!(clients.0.conn.execute(&["EVAL", others, "1", "y"]).is_nil());
        clients.waits(&mut second, &wants("x", &[]));
        if is_found {
            // The others have no session: they end on their own, but the one with a session would still have to
            // release.
            assert!(is_deadlock(&first.execute(&wants("y", &[]))));
        } else {
            clients.waits(&mut first, &wants("y", &[]));
        }
        assert_eq!(number(&mut clients.0.conn, "deadlocks_unchecked"), i64::from(!is_found));
    }
}

#[test]
fn a_client_without_session_locks_costs_nothing() {
    let mut clients = Clients(Locks::with(&["deadlock-edges", "0"]));
    let mut holder = clients.holds("k", &[]);
    let mut stranger = clients.0.server.conn();
    stranger.int(&["LOCK.ACQUIRE", "lease", "PX", "600000"]);
    clients.waits(&mut stranger, &wants("k", &[]));
    assert_eq!(number(&mut clients.0.conn, "deadlocks_unchecked"), 0);
    clients.waits(&mut holder, &wants("lease", &[]));
    assert_eq!(number(&mut clients.0.conn, "deadlocks_unchecked"), 1);
}
