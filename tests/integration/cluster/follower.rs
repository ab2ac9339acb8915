//! A client that follows its slot: it asks the node named by MOVED or ASK, and asks again if its wait is ended. Many
//! of them share one lock, and each checks that it is the only holder.

use super::Cluster;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use testkit::{until, Conn, Reply, SetAtEnd};

pub struct Follower {
    conns: HashMap<u16, Conn>,
    /// The ports of all nodes; it asks the first.
    ports: VecDeque<u16>,
}

impl Follower {
    pub fn of(cluster: &Cluster) -> Self {
        Self { conns: HashMap::new(), ports: cluster.nodes.iter().map(|node| node.port).collect() }
    }

    /// Sends a command to the right node; `None` if it must be sent again.
    pub fn execute(&mut self, command: &[&str]) -> Option<Reply> {
        let mut port = self.ports[0];
        let mut asking = false;
        for _ in 0..16 {
            let Some(reply) = self.execute_at(port, asking, command) else {
                // The node may be down.
                self.ports.rotate_left(1);
                return None;
            };
            let Reply::Error(text) = &reply else { return Some(reply) };
            let mut words = text.split(' ');
            let (code, address) = (words.next()?, words.nth(1));
            match (code, address.and_then(|address| address.rsplit(':').next()?.parse().ok())) {
                ("MOVED", Some(to)) => {
                    let at = self.ports.iter().position(|port| *port == to).unwrap_or(0);
                    self.ports.rotate_left(at);
                    (port, asking) = (to, false);
                    thread::sleep(Duration::from_millis(1));
                }
                ("ASK", Some(to)) => (port, asking) = (to, true),
                ("UNBLOCKED" | "CLUSTERDOWN" | "TRYAGAIN", _) => return None,
                _ => return Some(reply),
            }
        }
        None
    }

    fn execute_at(&mut self, port: u16, asking: bool, command: &[&str]) -> Option<Reply> {
        let conn = match self.conns.entry(port) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Conn::to(port).ok()?),
        };
        let reply = if asking {
            conn.try_execute(&["ASKING"]).and_then(|_| conn.try_execute(command))
        } else {
            conn.try_execute(command)
        };
        if reply.is_err() {
            self.conns.remove(&port);
        }
        reply.ok()
    }
}

/// The results of many clients.
#[derive(Debug, Default)]
pub struct Work {
    inside: AtomicUsize,
    done: AtomicUsize,
    /// How many times a client was not the only holder.
    not_alone: AtomicUsize,
    /// How many times a lock was lost before its release.
    lost: AtomicUsize,
    stop: AtomicBool,
}

impl Work {
    /// Waits until the lock has changed hands often.
    pub fn goes_on(&self) {
        let before = self.done.load(Ordering::SeqCst);
        until("work goes on", || (self.done.load(Ordering::SeqCst) > before + 20).then_some(()));
    }

    /// Asserts that each was the only holder until its release.
    pub fn assert_exclusive(self) {
        assert_eq!((self.not_alone.into_inner(), self.lost.into_inner()), (0, 0));
    }
}

/// The number of clients that take turns.
const CLIENTS: u64 = 8;

/// Clients wait for a lock and take it for `lease_ms` in turn, while `meanwhile` runs.
pub fn take_turns(cluster: &Cluster, key: &str, lease_ms: u64, meanwhile: impl FnOnce(&Work)) -> Work {
    let work = Work::default();
    thread::scope(|scope| {
        for n in 0..CLIENTS {
            let work = &work;
            scope.spawn(move || work_in_turn(work, &mut Follower::of(cluster), key, (lease_ms, n)));
        }
        let _stop = SetAtEnd(&work.stop);
        meanwhile(&work);
    });
    work
}

fn work_in_turn(work: &Work, client: &mut Follower, key: &str, (lease_ms, n): (u64, u64)) {
    let lease = lease_ms.to_string();
    let mut attempt = n * 1_000_000_000;
    while !work.stop.load(Ordering::SeqCst) {
        attempt += 1;
        // The same ID until it gets a reply: a grant whose reply was lost is reported again.
        let id = attempt.to_string();
        let token = loop {
            match client.execute(&["LOCK.ACQUIRE", key, "PX", &lease, "WAIT", "1000", "ID", &id]) {
                Some(Reply::Int(token)) => break token.to_string(),
                Some(Reply::Nil) | None if work.stop.load(Ordering::SeqCst) => return,
                Some(Reply::Nil) | None => {}
                Some(other) => panic!("{other:?}"),
            }
        };
        if work.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            work.not_alone.fetch_add(1, Ordering::SeqCst);
        }
        thread::sleep(Duration::from_micros(300));
        work.inside.fetch_sub(1, Ordering::SeqCst);
        let released = loop {
            match client.execute(&["LOCK.RELEASE", key, &token]) {
                Some(reply) => break reply.int(),
                None if work.stop.load(Ordering::SeqCst) => return,
                None => {}
            }
        };
        if released != 1 {
            work.lost.fetch_add(1, Ordering::SeqCst);
        }
        work.done.fetch_add(1, Ordering::SeqCst);
    }
}
