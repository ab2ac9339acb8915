//! How a lock passes on, as `src/server/waiting.rs` and `src/server/serve.rs` do it.

use super::core::{state, Core, Plan, Stored};
use redis_lock::lock::queue::{LineId, Ticket};
use redis_lock::lock::rules::{self, Holds, Share, State};
use redis_lock::lock::token::Token;

impl Core {
    /// As `waiting::pass_on`.
    pub(super) fn pass_on(&mut self, key: u8, token: Token) {
        let (now, terms) = (self.at(), self.terms());
        let is_several = match self.keys.get_mut(&key) {
            Some(Stored::Several(holders)) => {
                holders.remove(token);
                true
            }
            _ => false,
        };
        let line = self.queues.waited_line(0, &[key]);
        let next = line.and_then(|line| self.queues.single_head(line)).and_then(|(ticket, head)| {
            let request = head.request();
            let decision = if is_several {
                rules::acquire(state(self.keys.get(&key), now), &request, false, terms, &mut self.tokens, now)
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
            return self.answer(ticket, &[plan]);
        }
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
        if let Some(line) = line {
            self.queues.set_ready(line);
        }
    }

    pub(super) fn answer(&mut self, ticket: Ticket, plans: &[Plan]) {
        let (_, keys) = self.queues.keys(ticket).unwrap();
        let waiter = self.queues.serve(ticket).unwrap();
        let client = usize::try_from(waiter.client).unwrap();
        for key in keys.as_slice().iter().filter(|_| waiter.session) {
            self.bind(key[0], client, &plans[0].holder, true);
        }
        self.granted(Some(client), plans, waiter.details);
    }

    /// As `serve::look_at`.
    pub(super) fn look_at(&mut self, line: LineId, behind: Option<Ticket>) {
        let key = self.queues.key(line).unwrap().1[0];
        let now = self.at();
        self.look_at_key(key);
        let lock = state(self.keys.get(&key), now);
        let is_nobodys = lock.is_nobodys();
        let due = match self.queues.next(line, behind, !is_nobodys) {
            Some((ticket, _, true)) => {
                if !self.try_all(ticket) {
                    self.queues.go_on(line, Some(ticket));
                }
                return;
            }
            Some((ticket, waiter, false)) => {
                let request = waiter.request();
                let may = is_nobodys || matches!(lock, State::Several(_));
                let decision = rules::acquire(lock, &request, !may, self.terms(), &mut self.tokens, now).unwrap();
                if let Some(plan) = Plan::of(&decision).filter(|_| may) {
                    self.write(key, &plan);
                    let is_alone = plan.holds == Holds::Alone;
                    self.answer(ticket, &[plan]);
                    if !is_alone {
                        self.queues.go_on(line, behind);
                    }
                    return;
                }
                Some(lock.free_at(request.share).unwrap_or(now)).filter(|_| !is_nobodys)
            }
            None if is_nobodys => None,
            None => lock.free_at(Share::Alone),
        };
        self.queues.set_due(line, due);
    }

    pub(super) fn try_all(&mut self, ticket: Ticket) -> bool {
        let now = self.at();
        if self.queues.is_held_up(ticket, now) {
            return false;
        }
        let keys: Vec<u8> = self.queues.keys(ticket).unwrap().1.as_slice().iter().map(|name| name[0]).collect();
        for key in &keys {
            self.look_at_key(*key);
        }
        let states: Vec<State<'_>> = keys.iter().map(|key| state(self.keys.get(key), now)).collect();
        let request = self.queues.waiter(ticket).unwrap().request();
        let decisions = rules::acquire_all(&states, &request, false, self.terms(), &mut self.tokens, now).unwrap();
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
