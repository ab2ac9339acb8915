//! Grants that end with their connection, and circles of connections that wait for each other, as
//! `src/server/session.rs` and `src/server/deadlock.rs` have them.

use super::core::{state, Core, Plan, Stored};
use super::plain::Call;
use redis_lock::engine::deadlock::Graph;
use redis_lock::engine::queue::Ticket;
use redis_lock::lock::rules::{self, Acquire, Release, Request, Share, State};
use redis_lock::lock::token::Token;
use std::collections::{HashSet, VecDeque};

impl Core {
    /// As `session::end` for all locks of a connection.
    pub(super) fn end_sessions(&mut self, client: usize) {
        let (ended, terms) = (self.at(), self.terms());
        for ((_, name), token) in self.sessions.end(client as u64) {
            let record = rules::end_session(self.look_at_key(name[0]), token, terms, ended);
            if let Some(plan) = record.and_then(|record| Plan::of(&Acquire::Prolong(record))) {
                self.write(name[0], &plan);
            }
        }
    }

    /// As `deadlock::closes_circle`, with each lock anew for each who waits for it.
    pub(super) fn closes_circle(&mut self, call: &Call, request: &Request<'_>) -> bool {
        if self.sessions.is_empty() {
            return false;
        }
        let own = call.client as u64;
        let mut graph = Graph::default();
        let (mut seen, mut reached) = (HashSet::from([own]), VecDeque::new());
        let own_ticket = |core: &Self, key: u8| request.id.and_then(|id| core.queues.ticket(0, &[key], id));
        let needs = call.keys.iter().filter_map(|key| self.need(*key, own_ticket(self, *key), request.share));
        let mut next = Some((own, needs.collect::<Vec<_>>()));
        while let Some((client, needs)) = next {
            for (holders, ends) in needs {
                reached.extend(holders.iter().copied().filter(|holder| seen.insert(*holder)));
                let lock = graph.add_lock(holders);
                graph.add_wait(client, lock, ends);
            }
            next = std::iter::from_fn(|| reached.pop_front()).find_map(|client| {
                let wait = self.queues.waits_for(client)?;
                let names = wait.keys.iter();
                Some((client, names.filter_map(|name| self.need(name[0], Some(wait.ticket), wait.share)).collect()))
            });
        }
        graph.closes_circle(own)
    }

    /// The clients whose sessions hold a key, and how many of them have to end.
    fn need(&self, key: u8, ticket: Option<Ticket>, share: Share) -> Option<(Vec<u64>, u64)> {
        let bound: Vec<(Token, u64)> =
            self.sessions.bindings(0, &[key]).map(|binding| (binding.token, binding.client)).collect();
        let lock = state(self.keys.get(&key), self.at());
        let holds = |(token, client): (Token, u64)| (rules::release(lock, token) == Release::InTime).then_some(client);
        let holders: Vec<u64> = bound.into_iter().filter_map(holds).collect();
        let most = self.queues.narrows(0, &[key]).before(ticket, share);
        let (live, most) = match lock {
            State::Several(holders) => (holders.live() as u64, most),
            _ => (1, 1),
        };
        let unbound = live - holders.len() as u64;
        let ends = (live + 1).saturating_sub(most).saturating_sub(unbound);
        (ends > 0 && !holders.is_empty()).then_some((holders, ends))
    }

    /// The holders of all keys as of now: a look at a key of another client is as good as one of its own.
    pub(super) fn look_at_all(&mut self) {
        let now = self.at();
        for stored in self.keys.values_mut() {
            if let Stored::Several(holders) = stored {
                holders.look(now);
            }
        }
    }
}
