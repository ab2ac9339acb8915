//! Grants that wait to be claimed. An attempt without a connection is granted its lock with a short lease, is told, and
//! claims the lock by sending its call again. Only the server that granted it knows whose it is.

use super::grant::Granted;
use super::queue::{Channel, Keys, Order, Ticket};
use crate::lock::record::Id;
use crate::lock::request::Share;
use crate::lock::time::MonotonicMicros;
use crate::lock::token::Token;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// A grant that was not claimed yet.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The grant, as it was written.
    pub granted: Granted,
    /// Database of the keys.
    pub db: i32,
    /// The keys.
    pub keys: Keys,
    /// The attempt.
    pub id: Id,
    /// How many others may hold the lock too.
    pub share: Share,
    /// The channel on which it was told.
    pub channel: Rc<Channel>,
    /// The connection whose end ends the wait.
    pub session: Option<u64>,
    /// When it was last sent.
    pub sent: MonotonicMicros,
    /// When it began to wait.
    pub since: MonotonicMicros,
    /// Until when it can be claimed.
    pub deadline: MonotonicMicros,
    /// A claim was refused.
    pub was_refused: bool,
    /// How many of its keys were released by their token.
    pub released: usize,
}

impl Claim {
    fn names(&self) -> impl Iterator<Item = Rc<[u8]>> + '_ {
        self.keys.iter().map(|name| match &self.keys {
            Keys::One(name) => Rc::clone(name),
            Keys::Several(_) => name.into(),
        })
    }
}

/// The canonical form of a [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimForm {
    ticket: usize,
    granted: Granted,
    place: (i32, Vec<Box<[u8]>>),
    attempt: (Id, Share),
    channel: Channel,
    session: Option<u64>,
    times: (MonotonicMicros, MonotonicMicros),
    released: usize,
    was_refused: bool,
}

/// The unclaimed grants that an attempt has among some keys.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// The grant of exactly these keys.
    pub same: Option<Ticket>,
    /// Those of other keys too, or of fewer.
    pub others: Vec<Ticket>,
}

/// All unclaimed grants.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    all: BTreeMap<Ticket, Claim>,
    ids: BTreeSet<(i32, Id, Ticket)>,
    tokens: BTreeSet<(Token, Ticket)>,
    deadlines: BTreeSet<(MonotonicMicros, Ticket)>,
    sessions: BTreeSet<(u64, Ticket)>,
    keys: BTreeSet<(i32, Rc<[u8]>, Ticket)>,
    /// The connections that have ended, whose grants have not passed on yet.
    over: VecDeque<u64>,
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

    /// A grant waits to be claimed.
    pub fn add(&mut self, ticket: Ticket, claim: Claim) {
        self.ids.insert((claim.db, claim.id, ticket));
        self.tokens.insert((claim.granted.token, ticket));
        self.deadlines.insert((claim.deadline, ticket));
        self.sessions.extend(claim.session.map(|client| (client, ticket)));
        self.keys.extend(claim.names().map(|name| (claim.db, name, ticket)));
        self.all.insert(ticket, claim);
    }

    /// The grant with that ticket.
    #[must_use]
    pub fn get(&self, ticket: Ticket) -> Option<&Claim> {
        self.all.get(&ticket)
    }

    /// One more key of a grant was released. Returns whether it was the last of them.
    pub fn release_one(&mut self, ticket: Ticket) -> bool {
        self.all.get_mut(&ticket).is_some_and(|claim| {
            claim.released = claim.released.saturating_add(1);
            claim.released >= claim.keys.len()
        })
    }

    /// Removes a grant: it was claimed, or cannot be claimed any more.
    pub fn take(&mut self, ticket: Ticket) -> Option<Claim> {
        let claim = self.all.remove(&ticket)?;
        self.ids.remove(&(claim.db, claim.id, ticket));
        self.tokens.remove(&(claim.granted.token, ticket));
        self.deadlines.remove(&(claim.deadline, ticket));
        if let Some(client) = claim.session {
            self.sessions.remove(&(client, ticket));
        }
        for name in claim.names() {
            self.keys.remove(&(claim.db, name, ticket));
        }
        Some(claim)
    }

    /// The grants of an attempt that have some of these keys.
    #[must_use]
    pub fn own(&self, db: i32, names: &[&[u8]], id: Id) -> Own {
        let mut own = Own::default();
        let tickets = self.ids.range((db, id, Ticket::FIRST)..=(db, id, Ticket::LAST));
        for (ticket, claim) in tickets.filter_map(|(.., ticket)| Some((*ticket, self.all.get(ticket)?))) {
            let common = claim.keys.iter().filter(|name| names.contains(name)).count();
            if common == names.len() && common == claim.keys.len() {
                own.same = Some(ticket);
            } else if common > 0 {
                own.others.push(ticket);
            }
        }
        own
    }

    /// A claim was refused.
    pub fn refused(&mut self, ticket: Ticket) {
        if let Some(claim) = self.all.get_mut(&ticket) {
            claim.was_refused = true;
        }
    }

    /// The grant of a key with that token.
    #[must_use]
    #[inline]
    pub fn of_grant(&self, db: i32, name: &[u8], token: Token) -> Option<(Ticket, &Claim)> {
        if self.all.is_empty() {
            return None;
        }
        self.find(db, name, token)
    }

    fn find(&self, db: i32, name: &[u8], token: Token) -> Option<(Ticket, &Claim)> {
        let tickets = self.tokens.range((token, Ticket::FIRST)..=(token, Ticket::LAST));
        let mut claims = tickets.filter_map(|(_, ticket)| Some((*ticket, self.all.get(ticket)?)));
        claims.find(|(_, claim)| claim.db == db && claim.keys.contains(name))
    }

    /// The grants of a key that were told on that channel, in order.
    #[must_use]
    pub fn of_channel(&self, db: i32, name: &[u8], channel: &Channel) -> Vec<Ticket> {
        let name: Rc<[u8]> = name.into();
        let tickets = self.keys.range((db, Rc::clone(&name), Ticket::FIRST)..=(db, name, Ticket::LAST));
        let is_wanted = |ticket: &Ticket| self.all.get(ticket).is_some_and(|claim| *claim.channel == *channel);
        tickets.map(|(.., ticket)| *ticket).filter(is_wanted).collect()
    }

    /// A connection has ended: its grants are to pass on.
    pub fn end_session(&mut self, client: u64) {
        if self.next_of(client).is_some() {
            self.over.push_back(client);
        }
    }

    fn next_of(&self, client: u64) -> Option<Ticket> {
        let mut tickets = self.sessions.range((client, Ticket::FIRST)..=(client, Ticket::LAST));
        tickets.next().map(|(_, ticket)| *ticket)
    }

    /// The next grant whose connection has ended.
    pub fn next_over(&mut self) -> Option<Ticket> {
        while let Some(client) = self.over.front() {
            if let Some(ticket) = self.next_of(*client) {
                return Some(ticket);
            }
            self.over.pop_front();
        }
        None
    }

    /// Whether there may be grants whose connection has ended.
    #[must_use]
    pub fn has_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// Whether any of them ends with a connection.
    #[must_use]
    pub fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// When the next of them can no longer be claimed.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonotonicMicros> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// One that can no longer be claimed at `now`.
    #[must_use]
    pub fn due(&self, now: MonotonicMicros) -> Option<Ticket> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, ticket)| *ticket)
    }

    /// All tickets, in order.
    pub fn tickets(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.all.keys().copied()
    }

    /// Drops at most so many of them. Returns whether these were the last.
    pub(super) fn drop_piece(&mut self, most: usize) -> bool {
        let tickets: Vec<Ticket> = self.tickets().take(most).collect();
        for ticket in tickets {
            self.take(ticket);
        }
        self.all.is_empty()
    }

    /// The canonical form. It leaves out when an attempt began to wait, which decides nothing.
    #[must_use]
    pub fn canonical(&self, tickets: &Order<Ticket>) -> Vec<ClaimForm> {
        let form = |(ticket, claim): (&Ticket, &Claim)| {
            let Claim {
                granted,
                db,
                keys,
                id,
                share,
                channel,
                session,
                sent,
                since: _,
                deadline,
                was_refused,
                released,
            } = claim;
            ClaimForm {
                ticket: tickets.at(*ticket),
                granted: granted.clone(),
                place: (*db, keys.iter().map(Box::from).collect()),
                attempt: (*id, *share),
                channel: channel.as_ref().clone(),
                session: *session,
                times: (*sent, *deadline),
                was_refused: *was_refused,
                released: *released,
            }
        };
        self.all.iter().map(form).collect()
    }
}
