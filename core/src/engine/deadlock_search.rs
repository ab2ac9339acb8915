//! Whether a client that begins to wait would wait for itself: what the graph of [`super::deadlock`] is made of.
//!
//! An edge is a client that waits for a lock, or a lock that a client holds by its session. The search inspects a
//! bounded number of them, because the server does nothing else meanwhile. It asks twice: first only whether the waits
//! lead back to the caller, if what the sessions say is true; that reads no key. Mostly they do not. If they do, the
//! search asks for one lock after another, and borrows nothing in between.

use super::counters::Counter;
use super::deadlock::{Graph, LockNumber};
use super::parts::Engine;
use super::queue::{Narrows, Queues, Ticket, Wait};
use super::sessions::Sessions;
use crate::lock::rules::{self, Release, Request, Share, State};
use crate::lock::token::Token;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::rc::Rc;

/// A lock that clients hold by their sessions.
#[derive(Debug)]
struct Held {
    number: LockNumber,
    holders: u64,
    /// How many hold it besides, whose grants end by themselves.
    others: u64,
    /// One holds it alone: that has to end, however many a caller allows.
    is_alone: bool,
    /// What those who wait ahead allow; not asked for who wants to hold it alone, who allows least.
    narrows: Option<Narrows>,
}

/// A search that is under way.
#[derive(Debug)]
pub struct Search {
    own: u64,
    graph: Graph,
    /// Each lock is inspected once: by where the sessions keep its name.
    locks: FxHashMap<(i32, *const u8), Option<Held>>,
    clients: Reached,
    edges: Edges,
    /// Waits for locks that sessions hold, to be added to the graph.
    needs: VecDeque<Need>,
    /// Whose sessions hold the lock that was asked for.
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
    fn place(&self) -> (i32, *const u8) {
        (self.db, self.name.as_ptr())
    }
}

/// What a search needs next.
#[derive(Debug)]
pub enum Step {
    /// This lock: [`Search::seen`].
    Look(i32, Rc<[u8]>),
    /// Nothing: whether the wait would close a circle.
    Done(bool),
}

/// Clients that were reached, each to be followed once.
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

    /// What the next of them waits for.
    fn next_wait<H>(&mut self, queues: &Queues<H>) -> Option<(u64, Wait)> {
        while let Some(client) = self.next.pop_front() {
            if let Some(wait) = queues.waits_for(client) {
                return Some((client, wait));
            }
        }
        None
    }
}

/// How many edges may still be inspected.
#[derive(Clone, Copy, Debug)]
struct Edges(usize);

impl Edges {
    fn inspect(&mut self, edges: usize) -> Result<(), TooMuch> {
        self.0 = self.0.checked_sub(edges).ok_or(TooMuch)?;
        Ok(())
    }
}

/// There is more to inspect than is allowed.
struct TooMuch;

impl<H> Engine<H> {
    /// A search whether a client, if it waited for these keys, would wait for itself: those sessions that hold them wait
    /// for keys whose sessions wait ..., and among the last is this client. Nothing where it would not.
    ///
    /// Those who wait ahead are no further steps: all that each of them waits for are the same holders. They count by how
    /// many they allow beside them. Where there are more edges than `most` it is taken for no, and counted.
    pub fn search(&mut self, own: u64, db: i32, names: &[&[u8]], request: &Request<'_>, most: usize) -> Option<Search> {
        // A circle leads back to a lock that the caller holds by its session.
        if !self.sessions.holds(own) {
            return None;
        }
        let mut edges = Edges(most);
        let mut needs = VecDeque::new();
        let begun = self.leads_back(own, db, names, &mut edges).and_then(|leads_back| {
            for name in names.iter().filter(|_| leads_back) {
                edges.inspect(1)?;
                // Only for one who would share it does it matter who waits ahead; that one wants no other lock besides.
                let id = request.id.filter(|_| request.share != Share::Alone);
                let ticket = id.and_then(|id| self.queues.ticket(db, name, id));
                needs.extend(need(&self.sessions, own, db, name, ticket, request.share));
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
                needs,
                bound: Vec::new(),
            }),
            Err(TooMuch) => {
                self.count(Counter::DeadlocksUnchecked);
                None
            }
        }
    }

    /// Goes on with a search.
    pub fn search_on(&mut self, search: &mut Search) -> Step {
        search.step(&self.queues, &self.sessions).unwrap_or_else(|TooMuch| {
            self.count(Counter::DeadlocksUnchecked);
            Step::Done(false)
        })
    }

    /// Whether those who seem to hold these keys wait for keys whose holders wait ..., and the caller is among them.
    fn leads_back(&self, own: u64, db: i32, names: &[&[u8]], edges: &mut Edges) -> Result<bool, TooMuch> {
        let mut clients = Reached::from(own);
        let mut holders_of = |clients: &mut Reached, db: i32, name: &[u8]| {
            edges.inspect(1)?;
            for binding in self.sessions.bindings(db, name) {
                edges.inspect(1)?;
                if binding.client == own {
                    return Ok(true);
                }
                clients.add(binding.client);
            }
            Ok(false)
        };
        for name in names {
            if holders_of(&mut clients, db, name)? {
                return Ok(true);
            }
        }
        while let Some((_, wait)) = clients.next_wait(&self.queues) {
            for name in wait.keys.iter() {
                if holders_of(&mut clients, wait.db, name)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// A client waits for a lock; nothing where no session holds it: it would come free by itself.
fn need(sessions: &Sessions, client: u64, db: i32, name: &[u8], ticket: Option<Ticket>, share: Share) -> Option<Need> {
    sessions.name(db, name).map(|name| Need { client, db, name: Rc::clone(name), ticket, share })
}

impl Search {
    fn step<H>(&mut self, queues: &Queues<H>, sessions: &Sessions) -> Result<Step, TooMuch> {
        loop {
            while let Some(need) = self.needs.front() {
                if !self.locks.contains_key(&need.place()) {
                    let (db, name) = (need.db, Rc::clone(&need.name));
                    let most = self.edges.0.saturating_add(1);
                    let bindings = sessions.bindings(db, &name).take(most);
                    self.bound = bindings.map(|binding| (binding.token, binding.client)).collect();
                    self.edges.inspect(self.bound.len())?;
                    return Ok(Step::Look(db, name));
                }
                if let Some(need) = self.needs.pop_front() {
                    self.add(&need, queues);
                }
            }
            let Some((client, wait)) = self.clients.next_wait(queues) else {
                return Ok(Step::Done(self.graph.closes_circle(self.own)));
            };
            for name in wait.keys.iter() {
                self.edges.inspect(1)?;
                self.needs.extend(need(sessions, client, wait.db, name, Some(wait.ticket), wait.share));
            }
        }
    }

    /// The lock that was asked for; nothing where it cannot be seen.
    pub fn seen(&mut self, lock: Option<State<'_>>) {
        let Some(need) = self.needs.front() else { return };
        let held = lock.and_then(|lock| {
            // What a binding says counts only while the key says so too.
            let holds = |(token, _): &(Token, u64)| rules::release(lock, *token) == Release::InTime;
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

    fn add<H>(&mut self, need: &Need, queues: &Queues<H>) {
        let Some(Some(held)) = self.locks.get_mut(&need.place()) else { return };
        let most = match need.share {
            Share::Alone => 1,
            _ if held.is_alone => 1,
            share => {
                let narrows = || queues.narrows(need.db, &need.name);
                held.narrows.get_or_insert_with(narrows).before(need.ticket, share)
            }
        };
        // All but most - 1 have to end; those that end by themselves come first.
        let live = held.holders.saturating_add(held.others);
        let ends = live.saturating_add(1).saturating_sub(most).saturating_sub(held.others);
        if ends > 0 {
            self.graph.add_wait(need.client, held.number, ends);
        }
    }
}
