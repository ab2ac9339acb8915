//! Random holders and waiters: each wait is refused exactly if a plain search of the graph, as the
//! contract words it, says that it would close a circle.

use super::{client as new_client, Clients};
use crate::support::{until, Server};
use crate::waiting::Locks;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A generator of which the same seed gives the same steps again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % n
    }
}

/// A lock as the test knows it: its token, and the client whose session it is.
struct Held {
    token: i64,
    session: Option<usize>,
}

/// What the test knows: holders, and lines of clients with their wish for SESSION.
#[derive(Default)]
struct Graph {
    held: BTreeMap<usize, Held>,
    lines: BTreeMap<usize, VecDeque<(usize, bool)>>,
}

impl Graph {
    fn waits_for(&self, client: usize) -> Option<usize> {
        self.lines.iter().find(|(_, line)| line.iter().any(|(waiter, _)| *waiter == client)).map(|(lock, _)| *lock)
    }

    /// Whom one who waits for a lock is behind: its session, and all who wait ahead.
    fn ahead(&self, lock: usize, client: usize) -> Vec<usize> {
        let line = self.lines.get(&lock).into_iter().flatten();
        let waiters = line.map(|(waiter, _)| *waiter).take_while(|waiter| *waiter != client);
        self.held.get(&lock).and_then(|held| held.session).into_iter().chain(waiters).collect()
    }

    /// Whether a wait of the client for the lock would close a circle: a plain search.
    fn closes(&self, client: usize, lock: usize) -> bool {
        let mut next: VecDeque<usize> = self.ahead(lock, client).into();
        let mut seen = BTreeSet::new();
        while let Some(at) = next.pop_front() {
            if at == client {
                return true;
            }
            if let (true, Some(lock)) = (seen.insert(at), self.waits_for(at)) {
                next.extend(self.ahead(lock, at));
            }
        }
        false
    }
}

/// The random test: clients, what the test knows of them, and how often what came about.
struct Play {
    clients: Clients,
    graph: Graph,
    dice: Dice,
    deadlocks: usize,
    waits: usize,
}

const CLIENTS: usize = 7;
const LOCKS: usize = 6;

impl Play {
    fn step(&mut self) {
        let (client, lock) = (self.dice.below(CLIENTS), self.dice.below(LOCKS));
        match (self.graph.waits_for(client), self.graph.held.contains_key(&lock), self.dice.below(8)) {
            (_, true, 0) => self.release(lock),
            (_, _, 1) if self.dice.below(3) == 0 => self.disconnect(client),
            (Some(_), _, 2) => self.disconnect(client),
            (None, _, _) => self.acquire(client, lock),
            _ => {}
        }
    }

    fn acquire(&mut self, client: usize, lock: usize) {
        let session = self.dice.below(4) > 0;
        let options: &[&str] = if session { &["SESSION"] } else { &[] };
        let closes = self.graph.closes(client, lock);
        if self.graph.held.contains_key(&lock) {
            self.clients.send(client, lock, options);
            if closes {
                self.deadlocks += 1;
                self.clients.all[client].failed("DEADLOCK");
            } else {
                self.waits += 1;
                let line = self.graph.lines.entry(lock).or_default();
                line.push_back((client, session));
                let count = i64::try_from(line.len()).unwrap();
                until("it waits as the search says", || (self.clients.waiters(lock) == count).then_some(()));
            }
        } else {
            self.clients.send(client, lock, options);
            let token = self.clients.all[client].granted();
            self.graph.held.insert(lock, Held { token, session: session.then_some(client) });
        }
    }

    fn release(&mut self, lock: usize) {
        let held = self.graph.held.remove(&lock).unwrap();
        self.clients.release(lock, held.token);
        self.hand_on(lock);
    }

    /// The first who waits has the lock now.
    fn hand_on(&mut self, lock: usize) {
        let Some((client, session)) = self.graph.lines.get_mut(&lock).and_then(VecDeque::pop_front) else { return };
        let token = self.clients.all[client].granted();
        self.graph.held.insert(lock, Held { token, session: session.then_some(client) });
    }

    fn disconnect(&mut self, client: usize) {
        self.graph.lines.values_mut().for_each(|line| line.retain(|(waiter, _)| *waiter != client));
        let id = self.clients.all[client].id.clone();
        assert_eq!(self.clients.locks.conn.int(&["CLIENT", "KILL", "ID", &id]), 1);
        self.clients.all[client] = new_client(&mut self.clients.locks);
        let ended: Vec<usize> =
            self.graph.held.iter().filter(|(_, held)| held.session == Some(client)).map(|(lock, _)| *lock).collect();
        for lock in ended {
            self.graph.held.remove(&lock);
            self.hand_on(lock);
            if !self.graph.held.contains_key(&lock) {
                until("the lock has expired", || {
                    let state = self.clients.locks.conn.call(&["LOCK.INFO", &format!("k{lock}")]).field("state");
                    (state.text() != "held").then_some(())
                });
            }
        }
    }
}

#[test]
fn random_waits_are_refused_as_a_plain_search_says() {
    let seed = u64::from(std::process::id()) * 0x9E37_79B9 + 1;
    eprintln!("seed {seed}");
    // No places are kept: who left is in nobody's way.
    let mut locks = Locks::on(Server::with().module_args(&["margin-ms", "0", "place-ms", "0"]).start());
    let all = (0..CLIENTS).map(|_| new_client(&mut locks)).collect();
    let clients = Clients { locks, all };
    let mut play = Play { clients, graph: Graph::default(), dice: Dice(seed), deadlocks: 0, waits: 0 };
    for _ in 0..3_000 {
        play.step();
    }
    assert!(play.deadlocks > 20 && play.waits > 100, "{} deadlocks, {} waits", play.deadlocks, play.waits);
}
