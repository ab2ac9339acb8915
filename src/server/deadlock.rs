//! Whether a client that begins to wait would wait for itself: what the graph of [`crate::engine::deadlock`] is made of.
//!
//! An edge is a client that waits for a lock, or a lock that a client holds by its session. The search inspects a
//! bounded number of them, because the server does nothing else meanwhile. It asks twice: first only whether the waits
//! lead back to the caller, if what the sessions say is true; that reads no key. Mostly they do not. If they do, the
//! keys are read and the graph is made.

use super::blocked;
use super::clock;
use super::context::{Context, OwnString};
use super::key::Key;
use super::stats::{self, Counter};
use super::{settings, state};
use crate::engine::deadlock::{Graph, LockNumber};
use crate::engine::queue::{Narrows, Ticket, Wait};
use crate::lock::error::Error;
use crate::lock::rules::{self, Release, Request, Share, State};
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::rc::Rc;

/// A lock that clients hold by their sessions.
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

struct Search<'a> {
    context: &'a Context,
    now: UnixMicros,
    graph: Graph,
    /// Each lock is inspected once: by where the sessions keep its name.
    locks: FxHashMap<(i32, *const u8), Option<Held>>,
    clients: Reached,
    edges: Edges,
}

/// Clients that were reached, each to be followed once.
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
    fn next_wait(&mut self) -> Option<(u64, Wait)> {
        while let Some(client) = self.next.pop_front() {
            if let Ok(Some(wait)) = state::with(|state| state.queues.waits_for(client)) {
                return Some((client, wait));
            }
        }
        None
    }
}

/// How many edges may still be inspected.
struct Edges(usize);

impl Edges {
    fn inspect(&mut self, edges: usize) -> Result<(), TooMuch> {
        self.0 = self.0.checked_sub(edges).ok_or(TooMuch)?;
        Ok(())
    }
}

/// There is more to inspect than is allowed.
struct TooMuch;

/// Whether the client of a call, if it waited for these keys, would wait for itself: those sessions that
/// hold them wait for keys whose sessions wait ..., and among the last is this client.
///
/// Those who wait ahead are no further steps: all that each of them waits for are the same holders. They
/// count by how many they allow beside them. Where there is too much to inspect it is taken for no, and counted.
///
/// # Errors
/// [`Error::Internal`]
pub fn closes_circle(context: &Context, db: i32, names: &[&[u8]], request: &Request<'_>) -> Result<bool, Error> {
    let own = blocked::client(context);
    // A circle leads back to a lock that the caller holds by its session.
    if state::with(|state| !state.sessions.holds(own))? {
        return Ok(false);
    }
    let found = search(context, own, db, names, request);
    context.select_db(db);
    Ok(found.unwrap_or_else(|TooMuch| {
        stats::add(Counter::DeadlocksUnchecked);
        false
    }))
}

fn search(context: &Context, own: u64, db: i32, names: &[&[u8]], request: &Request<'_>) -> Result<bool, TooMuch> {
    let mut edges = Edges(settings::deadlock_edges());
    if !leads_back(own, db, names, &mut edges)? {
        return Ok(false);
    }
    let search = Search {
        context,
        now: clock::now(),
        graph: Graph::default(),
        locks: FxHashMap::default(),
        clients: Reached::from(own),
        edges,
    };
    Ok(search.run(own, db, names, request)?.closes_circle(own))
}

/// Whether those who seem to hold these keys wait for keys whose holders wait ..., and the caller is among them.
fn leads_back(own: u64, db: i32, names: &[&[u8]], edges: &mut Edges) -> Result<bool, TooMuch> {
    let mut clients = Reached::from(own);
    let mut holders_of = |clients: &mut Reached, db: i32, name: &[u8]| {
        let found = state::with(|state| {
            edges.inspect(1)?;
            for binding in state.sessions.bindings(db, name) {
                edges.inspect(1)?;
                if binding.client == own {
                    return Ok(true);
                }
                clients.add(binding.client);
            }
            Ok(false)
        });
        found.unwrap_or(Ok(false))
    };
    for name in names {
        if holders_of(&mut clients, db, name)? {
            return Ok(true);
        }
    }
    while let Some((_, wait)) = clients.next_wait() {
        for name in wait.keys.iter() {
            if holders_of(&mut clients, wait.db, name)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl Search<'_> {
    fn run(mut self, own: u64, db: i32, names: &[&[u8]], request: &Request<'_>) -> Result<Graph, TooMuch> {
        for name in names {
            // Only for one who would share it does it matter who waits ahead; that one wants no other lock besides.
            let id = request.id.filter(|_| request.share != Share::Alone);
            let ticket = id.and_then(|id| state::with(|state| state.queues.ticket(db, name, id)).ok().flatten());
            self.wait(own, db, name, ticket, request.share)?;
        }
        while let Some((client, wait)) = self.clients.next_wait() {
            for name in wait.keys.iter() {
                self.wait(client, wait.db, name, Some(wait.ticket), wait.share)?;
            }
        }
        Ok(self.graph)
    }

    /// A client waits for a lock; nothing comes of it where the lock would come free by itself.
    fn wait(&mut self, client: u64, db: i32, name: &[u8], ticket: Option<Ticket>, share: Share) -> Result<(), TooMuch> {
        self.edges.inspect(1)?;
        let Ok(Some(name)) = state::with(|state| state.sessions.name(db, name).map(Rc::clone)) else { return Ok(()) };
        let place = (db, name.as_ptr());
        if !self.locks.contains_key(&place) {
            let held = self.read(db, &name)?;
            self.locks.insert(place, held);
        }
        let Some(Some(held)) = self.locks.get_mut(&place) else { return Ok(()) };
        let most = match share {
            Share::Alone => 1,
            _ if held.is_alone => 1,
            share => {
                let narrows = || state::with(|state| state.queues.narrows(db, &name)).unwrap_or_default();
                held.narrows.get_or_insert_with(narrows).before(ticket, share)
            }
        };
        // All but most - 1 have to end; those that end by themselves come first.
        let live = held.holders.saturating_add(held.others);
        let ends = live.saturating_add(1).saturating_sub(most).saturating_sub(held.others);
        if ends > 0 {
            self.graph.add_wait(client, held.number, ends);
        }
        Ok(())
    }

    /// Who holds a lock by sessions; nothing where none does.
    fn read(&mut self, db: i32, name: &[u8]) -> Result<Option<Held>, TooMuch> {
        let most = self.edges.0.saturating_add(1);
        let bound: Vec<(Token, u64)> = state::with(|state| {
            let bindings = state.sessions.bindings(db, name).take(most);
            bindings.map(|binding| (binding.token, binding.client)).collect()
        })
        .unwrap_or_default();
        self.edges.inspect(bound.len())?;
        let Some((holders, live, is_alone)) = self.holders(db, name, bound) else { return Ok(None) };
        for holder in &holders {
            self.clients.add(*holder);
        }
        let count = u64::try_from(holders.len()).unwrap_or(u64::MAX);
        let number = self.graph.add_lock(holders);
        Ok(Some(Held { number, holders: count, others: live.saturating_sub(count), is_alone, narrows: None }))
    }

    /// Those of the bound who hold it, how many hold it in all, and whether one does alone.
    fn holders(&self, db: i32, name: &[u8], bound: Vec<(Token, u64)>) -> Option<(Vec<u64>, u64, bool)> {
        let string = OwnString::in_db(self.context, db, name)?;
        let key = Key::open_read_only(self.context, string.as_arg(), self.now).ok()?;
        let lock = key.state();
        // What a binding says counts only while the key says so too.
        let holds = |(token, client): (Token, u64)| (rules::release(lock, token) == Release::InTime).then_some(client);
        let holders: Vec<u64> = bound.into_iter().filter_map(holds).collect();
        let (live, is_alone) = match lock {
            State::Several(holders) => (u64::try_from(holders.live()).unwrap_or(u64::MAX), false),
            _ => (1, true),
        };
        (!holders.is_empty()).then_some((holders, live, is_alone))
    }
}
