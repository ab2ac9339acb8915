//! Whether a grant reached the client that waited for it. If it did not, it is passed on.

use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::grant::{Granted, Written};
use crate::engine::outbox::{Grant, Letter};
use crate::engine::outstanding::Lost;
use crate::engine::queue::{Keys, Place, Ticket};
use crate::engine::{Clock, Engine, Limits};
use crate::lock::token::Token;

impl<H> Engine<H> {
    /// The next answer to send; `None` if there is none, or if enough were sent at once.
    pub fn next_answer(&mut self) -> Option<(H, Box<Letter>)> {
        if self.outbox.has_answers() && !self.answers.has_left() {
            return None;
        }
        let next = self.outbox.take();
        match &next {
            Some((_, letter)) => self.answers.spend(letter.answer.size()),
            None => self.renew_answers(),
        }
        next
    }

    /// Refills the budget of answers.
    pub const fn renew_answers(&mut self) {
        self.answers = Budget::ANSWERS;
    }

    /// Called when a grant reached its client, or is no longer meant for it.
    pub fn delivered(&mut self, token: Token) {
        self.outstanding.arrived(token);
    }

    /// Called when a grant did not reach its client: the grant is passed on, and an attempt with an ID gets its place
    /// back, unless the attempt has since asked again and got its grant.
    pub fn undelivered(&mut self, grant: Grant, limits: Limits, clock: impl Clock) {
        let Grant { granted, db, keys, id, owner, wants_result, ticket, .. } = grant;
        if !self.outstanding.arrived(granted.token) {
            return;
        }
        if let (Some(id), Some(until)) = (id, limits.reserved_until(clock)) {
            let place = Place { id, until, since: None, wants_result };
            self.queues.restore_place(db, keys.clone(), ticket, place, limits.most_places());
        }
        self.count(Counter::Undelivered);
        // Each of several locks is passed on separately.
        let written = Written { until: granted.until, id, owner };
        self.outstanding.lose((0..keys.len()).map(|at| Lost {
            db,
            keys: keys.clone(),
            at,
            token: granted.token,
            written: written.clone(),
            succeeds: granted.before(at).cloned(),
            is_unclaimed: false,
        }));
    }

    /// Called when a grant of several locks failed after the first of them were written: these are released soon. If
    /// they were released at once, they would be granted again at once, and the server would do nothing else.
    pub fn give_back(
        &mut self,
        ticket: Ticket,
        (db, keys): (i32, &Keys),
        count: usize,
        granted: &Granted,
        clock: impl Clock,
    ) {
        if count == 0 {
            return;
        }
        let token = granted.token;
        let named = self.queues.waiter(ticket).filter(|waiter| waiter.client().is_some());
        let (id, owner) = named.map_or((None, None), |waiter| (waiter.id, waiter.owner.clone()));
        let written = Written { until: granted.until, id, owner };
        let lost = (0..count).map(|at| Lost {
            db,
            keys: keys.clone(),
            at,
            token,
            written: written.clone(),
            succeeds: granted.before(at).cloned(),
            is_unclaimed: false,
        });
        self.outstanding.lose(lost);
        self.postpone_rest(clock);
    }
}
