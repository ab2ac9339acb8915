//! What the server of the model does outside of commands, as `src/server/waiting.rs` and `serve.rs`: waits that end,
//! connections that end, replies that leave or do not, and the turns of the timer.

use super::{Before, Letter, Mutant, News, Plan, Reply, Server, Settings};
use crate::line::{self, Over, Stand, DB, KEY, MOST_PLACES, NEVER, NOW};
use redis_lock::lock::record::Id;
use redis_lock::lock::rules::{self, Release};
use redis_lock::lock::time::{MonotonicMicros, UnixMicros};
use redis_lock::lock::token::Token;

impl Server {
    fn kept_until(settings: Settings) -> Option<MonotonicMicros> {
        (!settings.is(Mutant::ForgetsPlaces)).then_some(NEVER)
    }

    /// A client has waited enough.
    pub fn time_out(&mut self, settings: Settings, conn: u64) {
        let kept_until = Self::kept_until(settings);
        let over = self.line.step(Over::Wait(conn), |queues, _| queues.time_out(NOW, kept_until, MOST_PLACES));
        self.news.extend(over.map(|waiter| News::Answer { conn: waiter.client, reply: Reply::Nil }));
    }

    /// A place was kept long enough.
    pub fn give_place_up(&mut self, id: Id) {
        self.line.step(Over::Place(id), |queues, _| queues.time_out(NOW, None, MOST_PLACES));
    }

    /// The server notices that a connection has ended.
    pub fn hang_up(&mut self, settings: Settings, conn: u64, now: UnixMicros) {
        let kept_until = Self::kept_until(settings);
        self.line.step(Over::Nobodys, |queues, _| queues.leave(conn, kept_until, MOST_PLACES));
        let letter = self.letters.iter().find(|(_, letter)| letter.conn == conn).map(|(token, _)| *token);
        if let Some(token) = letter {
            self.undelivered(settings, token);
        }
        let mut ended = Vec::new();
        self.sessions(now, |sessions| ended = sessions.end(conn));
        for (_, token) in ended {
            self.ended = Some((token, now));
        }
    }

    /// The reply of a grant leaves: to whom.
    pub fn deliver(&mut self, token: Token) -> Option<Letter> {
        self.line.stands.retain(|stand| *stand != Stand::Granted(token));
        self.letters.remove(&token)
    }

    fn undelivered(&mut self, settings: Settings, token: Token) {
        let Some(letter) = self.letters.remove(&token) else { return };
        let told_again = !letter.is_on_its_way && !settings.is(Mutant::PassesOnWhatWasToldAgain);
        self.line.step(Over::Nobodys, |queues, tickets| {
            let Some(ticket) = tickets.remove(&token) else { return };
            if let (Some(id), false) = (letter.id, told_again) {
                queues.restore_place(DB, &[KEY], id, ticket, NEVER, MOST_PLACES);
            }
        });
        if told_again {
            return;
        }
        self.news.push(News::Undelivered { token });
        if !settings.is(Mutant::ForgetsLostGrants) {
            self.lost.push_back((token, letter.succeeds));
        }
    }

    /// A turn of the timer that does one piece of work.
    pub fn turn(&mut self, settings: Settings, now: UnixMicros) {
        self.line.step(Over::Nobodys, |queues, _| queues.set_due_ready(now));
        self.let_expire(now);
        if let Some((token, before)) = self.lost.pop_front() {
            return self.pass_on_lost(settings, token, before, now);
        }
        if let Some((token, at)) = self.ended.take() {
            return self.end_session(settings, token, at, now);
        }
        let is_ready = self.line.step(Over::Nobodys, |queues, _| queues.take_ready().is_some());
        if is_ready {
            self.look(settings, now);
        }
    }

    fn pass_on_lost(&mut self, settings: Settings, token: Token, before: Option<Before>, now: UnixMicros) {
        if rules::release(self.lock(now), token) == Release::Over {
            return;
        }
        self.news.push(News::Over { token });
        let before = before.map(|before| before.record(token));
        let head = self.line.waiting().next().map(|waits| waits.with_end(NEVER));
        let plan = head.and_then(|head| {
            let (request, terms, tokens) = (head.request(), settings.terms(), &mut self.tokens);
            let decision = match before {
                Some(record) => {
                    let lock = rules::State::Expired(record.timestamp, Some(record));
                    rules::acquire(lock, &request, rules::Turn::Now, terms, tokens, now)
                }
                None => rules::pass_on(token, &request, terms, tokens, now),
            };
            Plan::of(&decision.unwrap())
        });
        match (plan, before) {
            (Some(plan), _) => self.give(settings, plan, now),
            (None, Some(record)) => {
                let write = (record.encode().as_bytes().to_vec(), record.timestamp);
                self.store(settings, write, record.token, now);
            }
            (None, None) => self.delete(now),
        }
    }

    fn end_session(&mut self, settings: Settings, token: Token, at: UnixMicros, now: UnixMicros) {
        let at = if settings.is(Mutant::EndsSessionsAtOnce) { at.before(settings.margin) } else { at };
        let cut = rules::end_session(self.lock(now), token, settings.terms(), at);
        if let Some((write, until)) = cut.map(|record| (record.encode().as_bytes().to_vec(), record.timestamp)) {
            self.store(settings, (write, until), token, now);
            self.news.push(News::CutShort { token, until });
        }
    }

    /// As `serve::look_at`: if nobody has the lock, the first who waits gets it.
    fn look(&mut self, settings: Settings, now: UnixMicros) {
        let Some(head) = self.line.waiting().next().map(|waits| waits.with_end(NEVER)) else { return };
        if settings.is(Mutant::GrantsWithoutLooking) {
            self.key = None;
        }
        let taken_until = match self.lock(now) {
            rules::State::Held(until, _) => Some(until),
            // The key of the model has one holder.
            rules::State::Foreign | rules::State::Several(_) => self.foreign_due(),
            rules::State::Free | rules::State::Expired(..) => {
                if let Some(plan) = self.decide(settings, &head.request(), false, now) {
                    self.give(settings, plan, now);
                }
                return;
            }
        };
        self.line.step(Over::Nobodys, |queues, _| line::line(queues).map(|line| queues.set_due(line, taken_until)));
    }
}
