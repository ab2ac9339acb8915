//! Several keys and several holders: random steps on the crate's own rules, holders and queue, put together as
//! `src/server` does it, against a plain account of what is promised.
//!
//! `SEVERAL_STEPS` sets how many steps (200000).

pub mod drive;
pub mod plain;

use drive::{drive, Driven, Told, UNIT};
use plain::{Call, Share as PlainShare, Step};
use redis_lock::lock::holders::{Holder, Holders};
use redis_lock::lock::queue::{LineId, Queues, Ticket, Waiter};
use redis_lock::lock::record::{Id, Value};
use redis_lock::lock::rules::{self, Acquire, Holds, Release, Request, Share, State, Terms};
use redis_lock::lock::time::{Micros, MonotonicMicros, UnixMicros};
use redis_lock::lock::token::{Token, Tokens};
use std::collections::BTreeMap;

const START: u64 = 1_763_710_000_000_000;
const TERMS: Terms = Terms { margin: Micros(0) };
const NEVER: MonotonicMicros = MonotonicMicros(u64::MAX);

enum Stored {
    One(Vec<u8>),
    Several(Holders),
}

#[derive(Default)]
struct Core {
    now: u64,
    keys: BTreeMap<u8, Stored>,
    queues: Queues<()>,
    tokens: Tokens,
    told: Vec<(Option<usize>, Told)>,
}

fn id(number: u64) -> Id {
    Id::parse(number.to_string().as_bytes()).unwrap()
}

fn names(keys: &[u8]) -> Vec<&[u8]> {
    keys.iter().map(std::slice::from_ref).collect()
}

fn state(stored: Option<&Stored>, now: UnixMicros) -> State<'_> {
    match stored {
        None => State::Free,
        Some(Stored::One(bytes)) => State::of(Some(Value::read(bytes, || false)), now),
        Some(Stored::Several(holders)) => State::Several(holders),
    }
}

/// A decision, copied out of the key.
struct Plan {
    holder: Holder,
    holds: Holds,
    before: Option<Token>,
    writes: bool,
}

impl Plan {
    fn of(decision: &Acquire<'_>) -> Option<Self> {
        let (record, holds, before) = match decision {
            Acquire::Grant { record, succeeds, holds } => (record, *holds, succeeds.and_then(|before| before.token)),
            Acquire::Prolong(record) | Acquire::Keep(record) => (record, Holds::AsBefore, None),
            Acquire::Refuse => return None,
        };
        let writes = !matches!(decision, Acquire::Keep(_));
        Some(Self { holder: Holder::of(record), holds, before, writes })
    }
}

impl Core {
    fn at(&self) -> UnixMicros {
        UnixMicros(START + self.now)
    }

    /// As a key that is opened: its holders are told of as of now.
    fn look_at_key(&mut self, key: u8) -> State<'_> {
        let now = self.at();
        if let Some(Stored::Several(holders)) = self.keys.get_mut(&key) {
            holders.look(now);
        }
        state(self.keys.get(&key), now)
    }

    fn tell(&mut self, client: Option<usize>, told: Told) {
        self.told.push((client, told));
    }

    fn write(&mut self, key: u8, plan: &Plan) {
        if !plan.writes {
            return;
        }
        let is_among = match plan.holds {
            Holds::Alone => false,
            Holds::Among { .. } => true,
            Holds::AsBefore => matches!(self.keys.get(&key), Some(Stored::Several(_))),
        };
        if is_among {
            let now = self.at();
            let mut holders = match self.keys.remove(&key) {
                Some(Stored::Several(holders)) => holders,
                _ => Holders::new(),
            };
            if let Holds::Among { replaces: Some(token) } = plan.holds {
                holders.remove(token);
            }
            holders.look(now);
            holders.put(plan.holder.clone());
            self.keys.insert(key, Stored::Several(holders));
        } else {
            self.keys.insert(key, Stored::One(plan.holder.record().encode().as_bytes().to_vec()));
        }
        if let Some(line) = self.queues.waited_line(0, &[key]) {
            if is_among {
                self.queues.set_due_by(line, plan.holder.timestamp);
            } else {
                self.queues.set_due(line, Some(plan.holder.timestamp));
            }
        }
    }

    fn request(call: &Call) -> Request<'static> {
        let share = match call.share {
            PlainShare::Alone => Share::Alone,
            PlainShare::Shared => Share::Shared,
            PlainShare::Limit(most) => Share::Limit(most as u64),
        };
        Request { share, lease: Micros(call.lease), id: call.id.map(id), owner: None }
    }

    fn acquire(&mut self, call: &Call) {
        let request = Self::request(call);
        let now = self.at();
        for key in &call.keys {
            self.look_at_key(*key);
        }
        let states: Vec<State<'_>> = call.keys.iter().map(|key| state(self.keys.get(key), now)).collect();
        let ahead = call.keys.iter().any(|key| self.queues.has_ahead(0, &[*key], request.id));
        let decisions = if let [only] = states[..] {
            let decision = rules::acquire(only, &request, ahead, TERMS, &mut self.tokens, now).unwrap();
            Some(vec![decision]).filter(|decisions| decisions[0] != Acquire::Refuse)
        } else {
            rules::acquire_all(&states, &request, ahead, TERMS, &mut self.tokens, now).unwrap()
        };
        let Some(decisions) = decisions else {
            let dues: Vec<UnixMicros> = states.iter().map(|lock| lock.free_at(request.share).unwrap_or(now)).collect();
            return self.refused(call, &request, &dues);
        };
        let plans: Vec<Plan> = decisions.iter().filter_map(Plan::of).collect();
        for (key, plan) in call.keys.iter().zip(&plans) {
            self.write(*key, plan);
        }
        for key in &call.keys {
            let earlier = request.id.and_then(|id| self.queues.forget(0, &[*key], id)).and_then(|(_, waiter)| waiter);
            self.replaced(earlier);
        }
        self.granted(None, &plans, call.details);
    }

    fn granted(&mut self, client: Option<usize>, plans: &[Plan], details: bool) {
        let before = plans[0].before.filter(|_| details).map(Token::get);
        self.tell(client, Told::Granted(plans[0].holder.token.get(), before));
    }

    fn replaced(&mut self, earlier: impl IntoIterator<Item = Waiter<()>>) {
        for waiter in earlier {
            self.tell(Some(usize::try_from(waiter.client).unwrap()), Told::Unblocked);
        }
    }

    fn refused(&mut self, call: &Call, request: &Request<'_>, dues: &[UnixMicros]) {
        if call.waits {
            let Request { share, lease, id, .. } = *request;
            let (client, since) = (call.client as u64, MonotonicMicros(0));
            let waiter = Waiter {
                handle: (),
                client,
                share,
                lease,
                id,
                owner: None,
                details: call.details,
                session: false,
                since,
                until: NEVER,
            };
            let earlier = self.queues.join(0, &names(&call.keys), waiter).earlier;
            for (key, due) in call.keys.iter().zip(dues) {
                let line = self.queues.line(0, &[*key]).unwrap();
                self.queues.set_due_by(line, *due);
            }
            return self.replaced(earlier);
        }
        if let Some(id) = request.id {
            let earlier = self.queues.keep_place(0, &names(&call.keys), id, NEVER, 1_000);
            self.replaced(earlier);
        }
        self.tell(None, Told::Nil);
    }

    /// As `waiting::pass_on`.
    fn pass_on(&mut self, key: u8, token: Token) {
        let now = self.at();
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
                rules::acquire(state(self.keys.get(&key), now), &request, false, TERMS, &mut self.tokens, now)
            } else {
                rules::pass_on(token, &request, TERMS, &mut self.tokens, now)
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
        if !matches!(self.keys.get(&key), Some(Stored::Several(holders)) if !holders.is_empty()) {
            self.keys.remove(&key);
        }
        if let Some(line) = line {
            self.queues.set_ready(line);
        }
    }

    fn answer(&mut self, ticket: Ticket, plans: &[Plan]) {
        let waiter = self.queues.serve(ticket).unwrap();
        self.granted(Some(usize::try_from(waiter.client).unwrap()), plans, waiter.details);
    }

    /// As `serve::look_at`.
    fn look_at(&mut self, line: LineId, behind: Option<Ticket>) {
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
                let decision = rules::acquire(lock, &request, !may, TERMS, &mut self.tokens, now).unwrap();
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

    fn try_all(&mut self, ticket: Ticket) -> bool {
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
        let decisions = rules::acquire_all(&states, &request, false, TERMS, &mut self.tokens, now).unwrap();
        let Some(decisions) = decisions else { return false };
        let plans: Vec<Plan> = decisions.iter().filter_map(Plan::of).collect();
        for (key, plan) in keys.iter().zip(&plans) {
            self.write(*key, plan);
        }
        self.answer(ticket, &plans);
        true
    }

    fn deleted(&mut self, key: u8) {
        if let Some(line) = self.queues.waited_line(0, &[key]) {
            self.queues.set_ready(line);
        }
    }

    fn do_step(&mut self, step: &Step, token: &dyn Fn(usize) -> u64) {
        let now = self.at();
        let token = |grant: usize| Token::new(token(grant)).unwrap();
        match step {
            Step::Acquire(call) | Step::AcquireAll(call) => self.acquire(call),
            Step::Recover { key, lease } => {
                let request = Request { share: Share::Alone, lease: Micros(*lease), id: None, owner: None };
                self.look_at_key(*key);
                let lock = state(self.keys.get(key), now);
                let ahead = self.queues.has_ahead(0, &[*key], None);
                let decision = rules::recover(lock, &request, ahead, TERMS, &mut self.tokens, now).unwrap();
                match Plan::of(&decision) {
                    Some(plan) => {
                        self.write(*key, &plan);
                        self.granted(None, &[plan], true);
                    }
                    None => self.tell(None, Told::Nil),
                }
            }
            Step::Release { keys, grant } => {
                let (mut count, mut is_late) = (0, false);
                for key in keys {
                    let released = rules::release(self.look_at_key(*key), token(*grant));
                    if released != Release::Over {
                        self.pass_on(*key, token(*grant));
                        count += 1;
                        is_late |= released == Release::Late;
                    }
                }
                self.tell(None, Told::Number(if is_late && keys.len() == 1 { -1 } else { count }));
            }
            Step::Extend { keys, grant, lease } => {
                for key in keys {
                    self.look_at_key(*key);
                }
                let states: Vec<State<'_>> = keys.iter().map(|key| state(self.keys.get(key), now)).collect();
                let lease = Micros(*lease);
                let records = rules::extend_all(&states, token(*grant), lease, TERMS, now).unwrap();
                let plan = |record| Plan::of(&Acquire::Prolong(record)).unwrap();
                let plans: Option<Vec<Plan>> = records.map(|records| records.into_iter().map(plan).collect());
                for (key, plan) in keys.iter().zip(plans.iter().flatten()) {
                    self.write(*key, plan);
                }
                self.tell(None, Told::Number(i64::from(plans.is_some())));
            }
            Step::Check { key, grant } => {
                let left = rules::check(self.look_at_key(*key), token(*grant), TERMS, now);
                self.tell(None, Told::Number(i64::from(left > Micros(0))));
            }
            Step::Cancel { key, id: number } => {
                let found = self.queues.forget(0, &[*key], id(*number));
                let stood = found.is_some();
                if let Some((_, Some(waiter))) = found {
                    self.tell(Some(usize::try_from(waiter.client).unwrap()), Told::Nil);
                }
                let held = rules::held_by(self.look_at_key(*key), id(*number));
                if let Some(token) = held {
                    self.pass_on(*key, token);
                }
                self.tell(None, Told::Number(i64::from(stood || held.is_some())));
            }
            Step::Delete { key } => {
                let was = self.keys.remove(key).is_some();
                self.deleted(*key);
                self.tell(None, Told::Number(i64::from(was)));
            }
            Step::Pass { time } => self.now += time,
        }
    }
}

impl Driven for Core {
    fn step(
        &mut self,
        step: &Step,
        token: &dyn Fn(usize) -> u64,
        _expected: &[Option<usize>],
    ) -> Vec<(Option<usize>, Told)> {
        self.now += 1;
        self.do_step(step, token);
        let now = self.at();
        self.queues.set_due_ready(now);
        let mut looks = 0;
        while let Some((line, behind)) = self.queues.take_ready() {
            self.look_at(line, behind);
            looks += 1;
            assert!(looks < 1_000, "it looks for ever");
            self.queues.set_due_ready(now);
        }
        std::mem::take(&mut self.told)
    }

    fn content(&mut self, key: u8) -> (bool, Vec<(u64, u64)>) {
        let end = |timestamp: UnixMicros| (timestamp.0 - START) / UNIT;
        match self.keys.get(&key) {
            None => (false, Vec::new()),
            Some(Stored::One(bytes)) => {
                let Value::Ours(record) = Value::read(bytes, || false) else { panic!("not ours") };
                (true, vec![(record.token.get(), end(record.timestamp))])
            }
            Some(Stored::Several(holders)) => {
                let mut own: Vec<_> =
                    holders.iter().map(|holder| (holder.token.get(), end(holder.timestamp))).collect();
                own.sort_unstable();
                (false, own)
            }
        }
    }

    fn waiters(&mut self, key: u8) -> usize {
        self.queues.length(0, &[key]).0
    }
}

#[test]
fn random_steps_of_many_clients_end_as_a_plain_account_says() {
    let steps = std::env::var("SEVERAL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(200_000);
    for seed in 1..=20 {
        drive(&mut Core::default(), seed, steps / 20);
    }
}
