//! Whether a client that begins to wait would wait for itself: what the graph of [`crate::lock::deadlock`] is made of.
//!
//! An edge is a client that waits for a lock, or a lock that a client holds by its session. The search inspects a
//! bounded number of them, because the server does nothing else meanwhile.

use super::blocked;
use super::clock;
use super::context::{Context, OwnString};
use super::key::Key;
use super::stats::{self, Counter};
use super::{settings, state};
use crate::lock::deadlock::{Graph, LockNumber};
use crate::lock::error::Error;
use crate::lock::queue::{Narrows, Ticket};
use crate::lock::rules::{self, Release, Request, Share, State};
use crate::lock::token::Token;
use rustc_hash::FxHashSet;
use std::collections::{HashMap, VecDeque};

/// A lock that clients hold by their sessions.
struct Held {
    number: LockNumber,
    holders: u64,
    /// How many hold it besides, whose grants end by themselves.
    others: u64,
    narrows: Narrows,
}

struct Search<'a> {
    context: &'a Context,
    graph: Graph,
    /// Each lock is read once.
    locks: HashMap<(i32, Box<[u8]>), Option<Held>>,
    seen: FxHashSet<u64>,
    reached: VecDeque<u64>,
    /// How many edges may still be inspected.
    edges: usize,
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
    let mut search = Search {
        context,
        graph: Graph::default(),
        locks: HashMap::new(),
        seen: FxHashSet::from_iter([own]),
        reached: VecDeque::new(),
        edges: settings::deadlock_edges(),
    };
    let found = search.run(own, db, names, request);
    context.select_db(db);
    Ok(found.unwrap_or_else(|TooMuch| {
        stats::add(Counter::DeadlocksUnchecked);
        false
    }))
}

impl Search<'_> {
    fn run(&mut self, own: u64, db: i32, names: &[&[u8]], request: &Request<'_>) -> Result<bool, TooMuch> {
        for name in names {
            let ticket =
                request.id.and_then(|id| state::with(|state| state.queues.ticket(db, name, id)).ok().flatten());
            self.wait(own, db, name, ticket, request.share)?;
        }
        while let Some(client) = self.reached.pop_front() {
            let Ok(Some(wait)) = state::with(|state| state.queues.waits_for(client)) else { continue };
            for name in wait.keys.iter() {
                self.wait(client, wait.db, name, Some(wait.ticket), wait.share)?;
            }
        }
        Ok(self.graph.closes_circle(own))
    }

    fn inspect(&mut self, edges: usize) -> Result<(), TooMuch> {
        self.edges = self.edges.checked_sub(edges).ok_or(TooMuch)?;
        Ok(())
    }

    /// A client waits for a lock; nothing comes of it where the lock would come free by itself.
    fn wait(&mut self, client: u64, db: i32, name: &[u8], ticket: Option<Ticket>, share: Share) -> Result<(), TooMuch> {
        self.inspect(1)?;
        let place = (db, name.into());
        if !self.locks.contains_key(&place) {
            let held = self.read(db, name)?;
            self.locks.insert(place.clone(), held);
        }
        let Some(Some(held)) = self.locks.get(&place) else { return Ok(()) };
        // All but most - 1 have to end; those that end by themselves come first.
        let live = held.holders.saturating_add(held.others);
        let most = held.narrows.before(ticket, share);
        let ends = live.saturating_add(1).saturating_sub(most).saturating_sub(held.others);
        if ends > 0 {
            self.graph.add_wait(client, held.number, ends);
        }
        Ok(())
    }

    /// Who holds a lock; nothing where no session does.
    fn read(&mut self, db: i32, name: &[u8]) -> Result<Option<Held>, TooMuch> {
        let most = self.edges.saturating_add(1);
        let bound: Vec<(Token, u64)> = state::with(|state| {
            let bindings = state.sessions.bindings(db, name).take(most);
            bindings.map(|binding| (binding.token, binding.client)).collect()
        })
        .unwrap_or_default();
        self.inspect(bound.len())?;
        if bound.is_empty() {
            return Ok(None);
        }
        Ok(self.holders(db, name, bound))
    }

    fn holders(&mut self, db: i32, name: &[u8], bound: Vec<(Token, u64)>) -> Option<Held> {
        let string = OwnString::in_db(self.context, db, name)?;
        let key = Key::open_read_only(self.context, string.as_arg(), clock::now()).ok()?;
        let lock = key.state();
        // What a binding says counts only while the key says so too.
        let holds = |(token, client): (Token, u64)| (rules::release(lock, token) == Release::InTime).then_some(client);
        let holders: Vec<u64> = bound.into_iter().filter_map(holds).collect();
        if holders.is_empty() {
            return None;
        }
        let live = match lock {
            State::Several(holders) => u64::try_from(holders.live()).unwrap_or(u64::MAX),
            _ => 1,
        };
        let narrows = state::with(|state| state.queues.narrows(db, name)).ok()?;
        self.reached.extend(holders.iter().copied().filter(|holder| self.seen.insert(*holder)));
        let count = u64::try_from(holders.len()).unwrap_or(u64::MAX);
        let number = self.graph.add_lock(holders);
        Some(Held { number, holders: count, others: live.saturating_sub(count), narrows })
    }
}
