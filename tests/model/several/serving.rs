//! How a lock passes on, as `src/server/waiting.rs` and `src/server/serve.rs` do it.

use super::core::{state, Core, Plan, Stored};
use redis_lock::engine::queue::{LineId, Next, ReplyShape, Ticket, Vacancy};
use redis_lock::lock::rules::{self, Holds, Share, State};
use redis_lock::lock::token::Token;
use std::collections::BTreeSet;

impl Core {
    /// As `waiting::pass_on`.
    pub(super) fn pass_on(&mut self, key: u8, token: Token, hands_off: bool) -> Option<LineId> {
        let (now, terms) = (self.at(), self.terms());
        let is_several = match self.keys.get_mut(&key) {
            Some(Stored::Several(holders)) => {
                holders.remove(token);
                true
            }
            _ => false,
        };
        let line = self.queues.waited_line(0, &[key]);
        let head = line.filter(|_| hands_off).and_then(|line| self.queues.single_head(line));
        let next = head.and_then(|(ticket, head)| {
            let request = head.request();
            let decision = if is_several {
                rules::acquire(
                    state(self.keys.get(&key), now),
                    &request,
                    rules::Turn::Now,
                    terms,
                    &mut self.tokens,
                    now,
                )
            } else {
                rules::pass_on(token, &request, terms, &mut self.tokens, now)
            };
            Some((ticket, Plan::of(&decision.unwrap())?))
        });
        if let Some((ticket, plan)) = next {
            if matches!((is_several, plan.holds), (false, Holds::Among { .. })) {
                self.keys.remove(&key);
            }
            self.write(key, &plan);
            self.answer(ticket, &[plan]);
            return None;
        }
        let is_free = !is_several || state(self.keys.get(&key), now).is_nobodys();
        match self.keys.remove(&key) {
            Some(Stored::Several(mut holders)) => {
                self.sessions.unbind(0, &[key], token);
                self.forget_some(&mut holders);
                if !holders.is_empty() {
                    self.keys.insert(key, Stored::Several(holders));
                }
            }
            _ => self.sessions.unbind_others(0, &[key], None),
        }
        if let Some(line) = line.filter(|_| !is_free) {
            self.queues.set_ready(line);
        }
        line.filter(|_| is_free)
    }

    /// As `parked::pass_on`.
    pub(super) fn pass_on_parked(&mut self, lines: &[LineId]) {
        let head = |core: &Self, line: LineId| Some((core.queues.parked_head(line)?, line));
        let mut heads: BTreeSet<(Ticket, LineId)> = lines.iter().filter_map(|line| head(self, *line)).collect();
        while let Some((ticket, line)) = heads.pop_first() {
            if !self.try_all(ticket) && self.queues.line_of_ticket(ticket) != Some(line) {
                heads.extend(head(self, line));
            }
        }
        for line in lines {
            self.queues.set_ready(*line);
        }
    }

    pub(super) fn answer(&mut self, ticket: Ticket, plans: &[Plan]) {
        let (_, keys) = self.queues.keys(ticket).unwrap();
        let waiter = self.queues.serve(ticket).unwrap();
        let client = usize::try_from(waiter.client).unwrap();
        for key in keys.iter().filter(|_| waiter.session) {
            self.bind(key[0], client, &plans[0].holder, true);
        }
        self.granted(Some(client), plans, waiter.shape == ReplyShape::Details);
    }

    /// As `serve::look_at`.
    pub(super) fn look_at(&mut self, line: LineId) {
        let key = self.queues.key(line).unwrap().1[0];
        let now = self.at();
        self.look_at_key(key);
        let lock = state(self.keys.get(&key), now);
        let is_nobodys = lock.is_nobodys();
        let terms = self.terms();
        let due = match self.queues.next(line, if is_nobodys { Vacancy::Whole } else { Vacancy::Part }) {
            Next::Parked(ticket) => {
                if !self.try_all(ticket) {
                    self.queues.go_on(line);
                }
                return;
            }
            Next::Single(ticket, waiter) => {
                let request = waiter.request();
                let may = is_nobodys || matches!(lock, State::Several(_));
                let decision =
                    rules::acquire(lock, &request, super::core::turn(!may), terms, &mut self.tokens, now).unwrap();
                if let Some(plan) = Plan::of(&decision).filter(|_| may) {
                    self.write(key, &plan);
                    let is_alone = plan.holds == Holds::Alone;
                    self.answer(ticket, &[plan]);
                    if !is_alone {
                        self.queues.go_on(line);
                    }
                    return;
                }
                Some(lock.free_at(request.share).unwrap_or(now)).filter(|_| !is_nobodys)
            }
            Next::Later | Next::Nobody if is_nobodys => None,
            Next::Later | Next::Nobody => lock.free_at(Share::Alone),
        };
        self.queues.set_due(line, due);
    }

    /// As `parked::try_one`.
    pub(super) fn try_all(&mut self, ticket: Ticket) -> bool {
        let now = self.at();
        let keys: Vec<u8> = self.queues.keys(ticket).unwrap().1.iter().map(|name| name[0]).collect();
        for (at, key) in keys.iter().enumerate() {
            let is_held_up = self.queues.is_held_up(0, &[*key], ticket, now);
            let lock = self.look_at_key(*key);
            let due = lock.free_at(Share::Alone).filter(|_| !lock.is_nobodys());
            if is_held_up || !lock.is_nobodys() {
                let line = self.queues.park(ticket, at).unwrap();
                if let Some(due) = due.filter(|_| !is_held_up) {
                    self.queues.set_due_by(line, due);
                }
                return false;
            }
        }
        let states: Vec<State<'_>> = keys.iter().map(|key| state(self.keys.get(key), now)).collect();
        let request = self.queues.waiter(ticket).unwrap().request();
        let decisions =
            rules::acquire_all(&states, &request, rules::Turn::Now, self.terms(), &mut self.tokens, now).unwrap();
        let Some(decisions) = decisions else { return false };
        let plans: Vec<Plan> = decisions.iter().filter_map(Plan::of).collect();
        for (key, plan) in keys.iter().zip(&plans) {
            self.write(*key, plan);
        }
        self.answer(ticket, &plans);
        true
    }

    pub(super) fn deleted(&mut self, key: u8) {
        if let Some(line) = self.queues.waited_line(0, &[key]) {
            self.queues.set_ready(line);
        }
    }
}
