//! Unclaimed grants. An attempt without a connection is granted its lock with a short lease, is notified, and claims
//! the lock by resending its command. Only the server that granted the lock knows which attempt got it.

#[cfg(feature = "model")]
mod canonical;
mod turns;

use super::budget::Budget;
use super::grant::Granted;
use super::key_name::{KeyName, KeyNames};
use super::queue::{Channel, Keys, Mark, Marks, Ticket};
use crate::lock::record::Id;
use crate::lock::request::Share;
use crate::lock::time::MonotonicMicros;
use crate::lock::token::Token;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use turns::Turns;

#[cfg(feature = "model")]
pub use canonical::ClaimForm;

/// A grant that has not been claimed yet.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The grant, as it was written.
    pub granted: Granted,
    /// The keys' database.
    pub db: i32,
    pub keys: Keys,
    /// The attempt.
    pub id: Id,
    /// How many others may hold the lock too.
    pub share: Share,
    /// Whether its attempt takes the holder's result instead of the lock.
    pub wants_result: bool,
    /// The channel on which it was notified.
    pub channel: Rc<Channel>,
    /// The connection whose end ends the wait.
    pub session: Option<u64>,
    /// When it was last sent.
    pub sent: MonotonicMicros,
    /// When it began to wait.
    pub since: MonotonicMicros,
    /// The deadline for claiming it.
    pub deadline: MonotonicMicros,
    /// Whether a claim was refused.
    pub was_refused: bool,
    /// How many of its keys were released with its token.
    pub released: usize,
    /// Whether its attempt was notified of its cancellation, which is being written.
    pub is_end_announced: bool,
    /// Why it can no longer be claimed and is passed on soon, if so.
    pub leaves: Option<Leaves>,
}

/// Why an unclaimed grant can no longer be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leaves {
    /// It was cancelled with its channel.
    Cancelled {
        /// The key for which it was cancelled.
        at: usize,
    },
    /// A newer command of its attempt asks for other keys.
    Replaced,
}

/// An attempt's unclaimed grants on a set of keys.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// The grant of exactly these keys.
    pub same: Option<Ticket>,
    /// Grants that share keys with these, but have other keys too, or fewer.
    pub others: Vec<Ticket>,
}

/// All unclaimed grants.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    all: BTreeMap<Ticket, Claim>,
    tokens: BTreeSet<(Token, Ticket)>,
    deadlines: BTreeSet<(MonotonicMicros, Ticket)>,
    sessions: BTreeSet<(u64, Ticket)>,
    /// Each key of each grant, with its index in the grant. Names can have the same mark.
    keys: BTreeSet<(Mark, Id, Ticket, usize)>,
    /// The last key found: a command names a grant's keys one after the other, and comparing two names costs less than
    /// computing a mark.
    found: Cell<(Ticket, usize)>,
    /// The ended connections whose grants have not been passed on yet.
    over: VecDeque<u64>,
    /// The grants that leave one by one.
    leaving: VecDeque<Ticket>,
    turns: Turns,
}

impl Claims {
    /// The number of unclaimed grants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds an unclaimed grant.
    pub fn add(&mut self, ticket: Ticket, claim: Claim) {
        self.tokens.insert((claim.granted.token, ticket));
        self.deadlines.insert((claim.deadline, ticket));
        self.sessions.extend(claim.session.map(|client| (client, ticket)));
        let marks = claim.keys.marks().iter().enumerate();
        self.keys.extend(marks.map(|(at, mark)| (*mark, claim.id, ticket, at)));
        self.all.insert(ticket, claim);
    }

    /// The grant with this ticket.
    #[must_use]
    pub fn get(&self, ticket: Ticket) -> Option<&Claim> {
        self.all.get(&ticket)
    }

    /// Notes that one more key of a grant was released. Returns whether it was the last of them.
    pub fn release_one(&mut self, ticket: Ticket) -> bool {
        self.all.get_mut(&ticket).is_some_and(|claim| {
            claim.released = claim.released.saturating_add(1);
            claim.released >= claim.keys.len()
        })
    }

    /// Removes a grant that was claimed or can no longer be.
    pub fn take(&mut self, ticket: Ticket) -> Option<Claim> {
        let claim = self.all.remove(&ticket)?;
        self.tokens.remove(&(claim.granted.token, ticket));
        self.deadlines.remove(&(claim.deadline, ticket));
        if let Some(client) = claim.session {
            self.sessions.remove(&(client, ticket));
        }
        for (at, mark) in claim.keys.marks().iter().enumerate() {
            self.keys.remove(&(*mark, claim.id, ticket, at));
        }
        Some(claim)
    }

    /// The grants of a key to attempts in a range of IDs, in ID order.
    fn of_key<'a>(
        &'a self,
        key: KeyName<'a>,
        marks: &Marks,
        ids: [Id; 2],
    ) -> impl Iterator<Item = (Ticket, &'a Claim, usize)> {
        let (mark, [from, to]) = (marks.of(key.name), ids);
        let keys = self.keys.range((mark, from, Ticket::FIRST, 0)..=(mark, to, Ticket::LAST, usize::MAX));
        keys.filter_map(move |(_, _, ticket, at)| {
            let claim = self.all.get(ticket)?;
            (claim.db == key.db && claim.keys.get(*at) == Some(key.name)).then_some((*ticket, claim, *at))
        })
    }

    /// An attempt's grants that have some of these keys and can still be claimed.
    #[must_use]
    pub fn own(&self, keys: KeyNames<'_>, id: Id, marks: &Marks) -> Own {
        let mut common: BTreeMap<Ticket, usize> = BTreeMap::new();
        for key in keys.iter() {
            for (ticket, ..) in self.of_key(key, marks, [id, id]).filter(|(_, claim, _)| claim.leaves.is_none()) {
                let count = common.entry(ticket).or_default();
                *count = count.saturating_add(1);
            }
        }
        let mut own = Own::default();
        for (ticket, common) in common {
            let all = self.all.get(&ticket).map_or(0, |claim| claim.keys.len());
            if common == keys.names.len() && common == all {
                own.same = Some(ticket);
            } else {
                own.others.push(ticket);
            }
        }
        own
    }

    /// Whether a grant of a key to an attempt was cancelled, and has not been passed on yet.
    #[must_use]
    pub fn is_cancelled(&self, key: KeyName<'_>, id: Id, marks: &Marks) -> bool {
        let is_it = |claim: &Claim| matches!(claim.leaves, Some(Leaves::Cancelled { .. }));
        !self.leaving.is_empty() && self.of_key(key, marks, [id, id]).any(|(_, claim, _)| is_it(claim))
    }

    /// Called when a grant can no longer be claimed: it is passed on soon.
    pub fn leave_soon(&mut self, ticket: Ticket, leaves: Leaves) {
        if let Some(claim) = self.all.get_mut(&ticket).filter(|claim| claim.leaves.is_none()) {
            claim.leaves = Some(leaves);
            self.leaving.push_back(ticket);
        }
    }

    /// Called when a grant's attempt is notified of its cancellation.
    pub fn end_announced(&mut self, ticket: Ticket) -> Option<&Claim> {
        let claim = self.all.get_mut(&ticket).filter(|claim| !claim.is_end_announced)?;
        claim.is_end_announced = true;
        Some(claim)
    }

    /// Notes that a claim was refused.
    pub fn refused(&mut self, ticket: Ticket) {
        if let Some(claim) = self.all.get_mut(&ticket) {
            claim.was_refused = true;
        }
    }

    /// The grant of a key with this token, and the key's index in it.
    #[must_use]
    #[inline]
    pub fn of_grant(&self, key: KeyName<'_>, token: Token, marks: &Marks) -> Option<(Ticket, &Claim, usize)> {
        if self.all.is_empty() {
            return None;
        }
        self.find(key, token, marks)
    }

    fn find(&self, key: KeyName<'_>, token: Token, marks: &Marks) -> Option<(Ticket, &Claim, usize)> {
        let tickets = self.tokens.range((token, Ticket::FIRST)..=(token, Ticket::LAST));
        let claims = tickets.filter_map(|(_, ticket)| Some((*ticket, self.all.get(ticket)?)));
        for (ticket, claim) in claims.filter(|(_, claim)| claim.db == key.db) {
            if let Some(at) = self.index_in(ticket, claim, key.name, marks) {
                self.found.set((ticket, at));
                return Some((ticket, claim, at));
            }
        }
        None
    }

    /// The index of a key in a grant.
    fn index_in(&self, ticket: Ticket, claim: &Claim, name: &[u8], marks: &Marks) -> Option<usize> {
        let is_it = |at: &usize| claim.keys.get(*at) == Some(name);
        let (last, at) = self.found.get();
        let near = if last == ticket { [at, at.saturating_add(1)] } else { [0; 2] };
        near.into_iter().find(is_it).or_else(|| {
            let mark = marks.of(name);
            let same = self.keys.range((mark, claim.id, ticket, 0)..=(mark, claim.id, ticket, usize::MAX));
            same.map(|(.., at)| *at).find(is_it)
        })
    }

    /// The grants of a key that were announced on this channel and can still be claimed, in order, each with the key's
    /// index in it.
    #[must_use]
    pub fn of_channel(&self, key: KeyName<'_>, channel: &Channel, marks: &Marks) -> Vec<(Ticket, usize)> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let all = self.of_key(key, marks, [Id::FIRST, Id::LAST]);
        let is_wanted = |claim: &Claim| claim.leaves.is_none() && *claim.channel == *channel;
        let mut found: Vec<(Ticket, usize)> =
            all.filter(|(_, claim, _)| is_wanted(claim)).map(|(ticket, _, at)| (ticket, at)).collect();
        found.sort_unstable();
        found
    }

    /// Called when a connection has ended: its grants have to be passed on.
    pub fn end_session(&mut self, client: u64) {
        if self.next_of(client).is_some() {
            self.over.push_back(client);
        }
    }

    fn next_of(&self, client: u64) -> Option<Ticket> {
        let mut tickets = self.sessions.range((client, Ticket::FIRST)..=(client, Ticket::LAST));
        tickets.next().map(|(_, ticket)| *ticket)
    }

    /// The next grant that is leaving or whose connection has ended.
    pub fn next_over(&mut self) -> Option<Ticket> {
        while let Some(ticket) = self.leaving.front() {
            if self.all.contains_key(ticket) {
                return Some(*ticket);
            }
            self.leaving.pop_front();
        }
        while let Some(client) = self.over.front() {
            if let Some(ticket) = self.next_of(*client) {
                return Some(ticket);
            }
            self.over.pop_front();
        }
        None
    }

    /// Whether there may be grants that are leaving.
    #[must_use]
    pub fn has_over(&self) -> bool {
        !self.over.is_empty() || !self.leaving.is_empty()
    }

    /// Whether any grant ends with a connection.
    #[must_use]
    pub fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// When the next grant can no longer be claimed, at the earliest; `Some(None)` if that time has passed and the
    /// sockets have to be read first.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Option<MonotonicMicros>> {
        let [last, _] = self.turns.last;
        let reads_until = self.turns.reads_until();
        self.deadlines.first().map(|(deadline, _)| Some(reads_until.max(*deadline)).filter(|next| *next > last))
    }

    /// A grant that can no longer be claimed at `now`.
    #[must_use]
    pub fn due(&self, now: MonotonicMicros) -> Option<Ticket> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, ticket)| *ticket)
    }

    /// Drops grants until the budget is spent. Returns whether none is left.
    pub(super) fn drop_piece(&mut self, budget: &mut Budget) -> bool {
        while budget.has_left() {
            let Some(first) = self.all.keys().next().copied() else { break };
            if let Some(claim) = self.take(first) {
                budget.spend_on_each(&claim.keys);
            }
        }
        self.all.is_empty()
    }

    /// The number of keys of all grants.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }
}
