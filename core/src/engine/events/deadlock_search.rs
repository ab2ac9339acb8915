//! The search that builds the graph of [`crate::engine::wait_graph`] to find out whether a client that begins to wait
//! would wait for itself.
//!
//! An edge is a client that waits for a lock, or a lock that a client holds through its session. The search inspects a
//! bounded number of edges, because the server does nothing else in the meantime. For the same reason other work counts
//! as edges too, according to the time it takes: see `Edges`. The search has two passes. The first reads no keys: it
//! assumes that the sessions' bindings are true and asks whether the waits lead back to the caller. Usually they do
//! not. If they do, the second pass asks for one lock at a time, and keeps no borrow in between.

use crate::engine::counters::Counter;
use crate::engine::queue::{Narrows, Queues, Ticket, Wait};
use crate::engine::sessions::Sessions;
use crate::engine::wait_graph::{Graph, LockNumber};
use crate::engine::{Clock, Engine, KeyName, KeyNames};
use crate::lock::held::{self, Release};
use crate::lock::request::{Request, Share};
use crate::lock::state::State;
use crate::lock::time::{Micros, MonotonicMicros};
use crate::lock::token::Token;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::rc::Rc;

/// A lock that sessions hold.
#[derive(Debug)]
struct Held {
    number: LockNumber,
    holders: u64,
    /// The number of other holders, whose grants end on their own.
    others: u64,
    /// A plain holder has it; its grant has to end however many holders a caller allows.
    is_alone: bool,
    /// How many holders the waiters ahead allow; not needed for a caller that wants the lock alone, which allows the
    /// fewest.
    narrows: Option<Narrows>,
}

/// A search in progress.
#[derive(Debug)]
pub struct Search<C> {
    own: u64,
    graph: Graph,
    /// The locks already inspected, by the address of the sessions' copy of the name.
    locks: FxHashMap<(i32, *const u8), Option<Held>>,
    clients: Reached,
    edges: Edges<C>,
    /// Whether the last lock read had more holders than there were edges left.
    is_spent: bool,
    /// Waits for locks that sessions hold, to be added to the graph.
    needs: VecDeque<Need>,
    /// The bindings of the last lock asked for.
    bound: Vec<(Token, u64)>,
}

#[derive(Debug)]
struct Need {
    client: u64,
    db: i32,
    name: Rc<[u8]>,
    ticket: Option<Ticket>,
    share: Share,
}

impl Need {
    fn key(&self) -> KeyName<'_> {
        KeyName { db: self.db, name: &self.name }
    }

    fn place(&self) -> (i32, *const u8) {
        (self.db, self.name.as_ptr())
    }
}

/// The next step of a search.
#[derive(Debug)]
pub enum Step {
    /// Inspect this lock and report it with [`Search::seen`].
    Inspect(i32, Rc<[u8]>),
    /// Done: whether the wait would close a cycle.
    Done(bool),
}

/// The clients reached so far; each is followed once.
#[derive(Debug)]
struct Reached {
    seen: FxHashSet<u64>,
    next: VecDeque<u64>,
}

impl Reached {
    fn from(client: u64) -> Self {
        Self { seen: FxHashSet::from_iter([client]), next: VecDeque::new() }
    }

    fn add(&mut self, client: u64) {
        if self.seen.insert(client) {
            self.next.push_back(client);
        }
    }

    /// The next waiting client, and its wait.
    fn next_wait<H>(&mut self, queues: &Queues<H>) -> Option<(u64, Wait)> {
        while let Some(client) = self.next.pop_front() {
            if let Some(wait) = queues.waits_for(client) {
                return Some((client, wait));
            }
        }
        None
    }
}

/// Opening a key takes as long as this many edges.
const OPENED: usize = 5;
/// Each holder that is read from the key, not from memory, counts as this many edges.
const READ: usize = 2;
/// Names are hashed and compared: this many bytes count as one edge.
const BYTES: usize = 128;
/// The clock is read once for this many edges.
const LOOK: usize = 128;
/// A search may always take this long.
const LEAST_TIME: Micros = Micros::from_ms(1);

/// How many edges may still be inspected, and for how long. Edges represent time, and 10,000 of them usually take less
/// than 2 ms. On a slow machine or allocator they would take longer, so the search also ends when that time has passed.
#[derive(Clone, Copy, Debug)]
struct Edges<C> {
    left: usize,
    /// How many edges are left when the clock is read next.
    next_look: usize,
    clock: C,
    begun: MonotonicMicros,
    most_time: Micros,
}

impl<C: Clock> Edges<C> {
    fn new(most: usize, clock: C) -> Self {
        let most_time = Micros(most as u64 / 5).max(LEAST_TIME);
        Self { left: most, next_look: most.saturating_sub(LOOK), clock, begun: clock.cpu(), most_time }
    }

    /// Inspects an edge to or from a lock, which is looked up by its name.
    fn inspect_named(&mut self, name: &[u8]) -> Result<(), TooMuch> {
        self.inspect(1_usize.saturating_add(name.len() / BYTES))
    }

    fn inspect(&mut self, edges: usize) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(edges).ok_or(TooMuch)?;
        if self.left > self.next_look {
            return Ok(());
        }
        self.next_look = self.left.saturating_sub(LOOK);
        if self.clock.cpu().since(self.begun) > self.most_time {
            return Err(TooMuch);
        }
        Ok(())
    }
}

/// The search reached its limit of edges or of time.
struct TooMuch;

impl<H> Engine<H> {
    /// Starts a search: would `own` wait for itself if it waited for these keys? It would if sessions that hold the
    /// keys wait for keys whose sessions wait in turn ... and one of these sessions is `own`. `None` if that is
    /// impossible.
    ///
    /// Waiters ahead of a client add no edges: they wait for the same holders. They only matter through the number of
    /// holders they allow. A search that meets more than `most` edges, or takes too long, answers no, and a counter
    /// records that.
    pub fn search<C: Clock>(
        &mut self,
        own: u64,
        keys: KeyNames<'_>,
        request: &Request<'_>,
        most: usize,
        clock: C,
    ) -> Option<Search<C>> {
        // A cycle leads back to a lock that the caller holds with its session.
        if !self.sessions.holds(own) {
            return None;
        }
        let mut edges = Edges::new(most, clock);
        let mut needs = VecDeque::new();
        let begun = self.leads_back(own, keys, &mut edges).and_then(|leads_back| {
            for key in keys.iter().filter(|_| leads_back) {
                edges.inspect_named(key.name)?;
                // The waiters ahead matter only to a caller that would share the lock, and such a caller wants just one
                // lock.
                let id = request.id.filter(|_| request.share != Share::Alone);
                let ticket = id.and_then(|id| self.queues.ticket(key, id));
                needs.extend(need(&self.sessions, own, key, ticket, request.share));
            }
            Ok(leads_back)
        });
        match begun {
            Ok(false) => None,
            Ok(true) => Some(Search {
                own,
                graph: Graph::default(),
                locks: FxHashMap::default(),
                clients: Reached::from(own),
                edges,
                is_spent: false,
                needs,
                bound: Vec::new(),
            }),
            Err(TooMuch) => {
                self.count(Counter::DeadlocksUnchecked);
                None
            }
        }
    }

    /// Continues a search.
    pub fn search_on<C: Clock>(&mut self, search: &mut Search<C>) -> Step {
        search.step(&self.queues, &self.sessions).unwrap_or_else(|TooMuch| {
            self.count(Counter::DeadlocksUnchecked);
            Step::Done(false)
        })
    }

    /// Whether the sessions that seem to hold these keys wait for keys whose sessions wait in turn ... and one of these
    /// sessions is the caller's.
    fn leads_back<C: Clock>(&self, own: u64, keys: KeyNames<'_>, edges: &mut Edges<C>) -> Result<bool, TooMuch> {
        let mut clients = Reached::from(own);
        let mut holders_of = |clients: &mut Reached, key: KeyName<'_>| {
            edges.inspect_named(key.name)?;
            for binding in self.sessions.bindings(key) {
                edges.inspect(1)?;
                if binding.client == own {
                    return Ok(true);
                }
                clients.add(binding.client);
            }
            Ok(false)
        };
        for key in keys.iter() {
            if holders_of(&mut clients, key)? {
                return Ok(true);
            }
        }
        while let Some((_, wait)) = clients.next_wait(&self.queues) {
            for name in wait.keys.iter() {
                if holders_of(&mut clients, KeyName { db: wait.db, name })? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// A client's wait for a lock; `None` if no session holds the lock, since it then becomes free on its own.
fn need(sessions: &Sessions, client: u64, key: KeyName<'_>, ticket: Option<Ticket>, share: Share) -> Option<Need> {
    sessions.name(key).map(|name| Need { client, db: key.db, name: Rc::clone(name), ticket, share })
}

impl<C: Clock> Search<C> {
    fn step<H>(&mut self, queues: &Queues<H>, sessions: &Sessions) -> Result<Step, TooMuch> {
        loop {
            if self.is_spent {
                return Err(TooMuch);
            }
            while let Some(need) = self.needs.front() {
                if !self.locks.contains_key(&need.place()) {
                    let (db, name) = (need.db, Rc::clone(&need.name));
                    self.edges.inspect(OPENED.saturating_add(name.len() / BYTES))?;
                    let most = self.edges.left.saturating_add(1);
                    let bindings = sessions.bindings(KeyName { db, name: &name }).take(most);
                    self.bound = bindings.map(|binding| (binding.token, binding.client)).collect();
                    self.edges.inspect(self.bound.len())?;
                    return Ok(Step::Inspect(db, name));
                }
                if let Some(need) = self.needs.pop_front() {
                    self.add(&need, queues)?;
                }
            }
            let Some((client, wait)) = self.clients.next_wait(queues) else {
                return Ok(Step::Done(self.graph.closes_cycle(self.own)));
            };
            for name in wait.keys.iter() {
                self.edges.inspect_named(name)?;
                let key = KeyName { db: wait.db, name };
                self.needs.extend(need(sessions, client, key, Some(wait.ticket), wait.share));
            }
        }
    }

    /// Takes the state of the lock that was asked for; `None` if it cannot be read. `read` is the number of holders
    /// read from its key.
    pub fn seen(&mut self, lock: Option<State<'_>>, read: usize) {
        let Some(need) = self.needs.front() else { return };
        if let Some(State::Several(holders)) = lock {
            let others = holders.len().saturating_sub(self.bound.len());
            self.is_spent = self.edges.inspect(read.saturating_mul(READ).saturating_add(others)).is_err();
        }
        let held = lock.and_then(|lock| {
            // A binding counts only if the key agrees with it.
            let holds = |(token, _): &(Token, u64)| held::release(lock, *token) == Release::InTime;
            let holders: Vec<u64> = self.bound.iter().filter(|bound| holds(bound)).map(|(_, client)| *client).collect();
            if holders.is_empty() {
                return None;
            }
            let (live, is_alone) = match lock {
                State::Several(holders) => (u64::try_from(holders.live()).unwrap_or(u64::MAX), false),
                _ => (1, true),
            };
            for holder in &holders {
                self.clients.add(*holder);
            }
            let count = u64::try_from(holders.len()).unwrap_or(u64::MAX);
            let number = self.graph.add_lock(holders);
            Some(Held { number, holders: count, others: live.saturating_sub(count), is_alone, narrows: None })
        });
        self.locks.insert(need.place(), held);
    }

    fn add<H>(&mut self, need: &Need, queues: &Queues<H>) -> Result<(), TooMuch> {
        let Some(Some(held)) = self.locks.get_mut(&need.place()) else { return Ok(()) };
        let most = match need.share {
            Share::Alone => 1,
            _ if held.is_alone => 1,
            share => {
                if held.narrows.is_none() {
                    let (narrows, inspected) = queues.narrows(need.key(), self.edges.left);
                    self.edges.inspect(inspected)?;
                    held.narrows = Some(narrows);
                }
                held.narrows.as_ref().map_or(1, |narrows| narrows.before(need.ticket, share))
            }
        };
        // All but most - 1 have to end; the holders that end on their own are counted first.
        let live = held.holders.saturating_add(held.others);
        let ends = live.saturating_add(1).saturating_sub(most).saturating_sub(held.others);
        if ends > 0 {
            self.graph.add_wait(need.client, held.number, ends);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::time::UnixMicros;
    use std::cell::Cell;

    /// Each reading of the CPU time comes this many microseconds after the one before it.
    #[derive(Clone, Copy)]
    struct Slow<'a>(&'a Cell<u64>, u64);

    impl Clock for Slow<'_> {
        fn now(self) -> UnixMicros {
            UnixMicros(0)
        }

        fn monotonic(self) -> MonotonicMicros {
            MonotonicMicros(0)
        }

        fn cpu(self) -> MonotonicMicros {
            self.0.set(self.0.get() + self.1);
            MonotonicMicros(self.0.get())
        }
    }

    /// How many edges are inspected, in steps of this many.
    fn inspected(most: usize, step: usize, us_per_look: u64) -> usize {
        let time = Cell::new(0);
        let mut edges = Edges::new(most, Slow(&time, us_per_look));
        (0..=most).take_while(|_| edges.inspect(step).is_ok()).count() * step
    }

    #[test]
    fn a_search_ends_when_its_edges_or_its_time_are_used_up() {
        assert_eq!([1, 7, 200].map(|step| inspected(10_000, step, 1)), [10_000, 9_996, 10_000]);
        // 2 ms, in looks of 100 us, 128 edges apart.
        assert!((20 * 128..=22 * 128).contains(&inspected(10_000, 1, 100)), "{}", inspected(10_000, 1, 100));
        // More edges may take longer, and a few always get a millisecond.
        assert!((200 * 128..=202 * 128).contains(&inspected(100_000, 1, 100)), "{}", inspected(100_000, 1, 100));
        assert_eq!(inspected(1_000, 1, 100), 1_000);
        assert_eq!(inspected(0, 1, 1), 0);
    }
}
