//! The crate's own rules, holders, queue and sessions, put together as `src/server` does it.

use super::drive::{Driven, Told, UNIT};
use super::plain::{Call, Settings, Share as PlainShare, Step};
use redis_lock::engine::queue::{MostPlaces, Queues, ReplyShape, Waiter};
use redis_lock::engine::sessions::{Binding, Sessions};
use redis_lock::lock::holders::{Holder, Holders};
use redis_lock::lock::record::{Id, Value};
use redis_lock::lock::rules::{self, Acquire, Holds, Release, Request, Retention, Share, State, Terms, Turn};
use redis_lock::lock::time::{Micros, MonotonicMicros, UnixMicros};
use redis_lock::lock::token::{Token, Tokens};
use std::collections::BTreeMap;

const START: u64 = 1_763_710_000_000_000;
/// As many places are kept at most.
const MOST_PLACES: MostPlaces = MostPlaces { keys: 1_000, bytes: 1_000_000 };

pub enum Stored {
    One(Vec<u8>),
    Several(Holders),
}

#[derive(Default)]
pub struct Core {
    settings: Settings,
    pub(super) now: u64,
    pub(super) keys: BTreeMap<u8, Stored>,
    pub(super) queues: Queues<()>,
    pub(super) sessions: Sessions,
    pub(super) tokens: Tokens,
    told: Vec<(Option<usize>, Told)>,
}

pub(super) fn turn(ahead: bool) -> Turn {
    if ahead {
        Turn::Behind
    } else {
        Turn::Now
    }
}

fn id(number: u64) -> Id {
    Id::parse(number.to_string().as_bytes()).unwrap()
}

fn names(keys: &[u8]) -> Vec<&[u8]> {
    keys.iter().map(std::slice::from_ref).collect()
}

pub(super) fn state(stored: Option<&Stored>, now: UnixMicros) -> State<'_> {
    match stored {
        None => State::Free,
        Some(Stored::One(bytes)) => State::of(Some(Value::read(bytes, || false)), now),
        Some(Stored::Several(holders)) => State::Several(holders),
    }
}

/// A decision, copied out of the key.
pub(super) struct Plan {
    pub(super) holder: Holder,
    pub(super) holds: Holds,
    before: Option<Token>,
    writes: bool,
}

impl Plan {
    pub(super) fn of(decision: &Acquire<'_>) -> Option<Self> {
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
    pub fn with(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub(super) fn terms(&self) -> Terms {
        Terms { margin: Micros(self.settings.margin) }
    }

    fn retention(&self) -> Retention {
        self.settings.retention.map_or(Retention::Forever, |retention| Retention::Ms(retention / 1_000))
    }

    fn kept_until(&self) -> MonotonicMicros {
        MonotonicMicros(self.now + self.settings.place)
    }

    pub(super) fn at(&self) -> UnixMicros {
        UnixMicros(START + self.now)
    }

    /// As a key that is opened: its holders are told of as of now.
    pub(super) fn look_at_key(&mut self, key: u8) -> State<'_> {
        let now = self.at();
        if let Some(Stored::Several(holders)) = self.keys.get_mut(&key) {
            holders.look(now);
        }
        state(self.keys.get(&key), now)
    }

    fn tell(&mut self, client: Option<usize>, told: Told) {
        self.told.push((client, told));
    }

    pub(super) fn write(&mut self, key: u8, plan: &Plan) {
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
            self.forget_some(&mut holders);
            self.keys.insert(key, Stored::Several(holders));
        } else {
            self.sessions.unbind_others(0, &[key], Some(plan.holder.token));
            self.keys.insert(key, Stored::One(plan.holder.record().encode().as_bytes().to_vec()));
        }
        self.sessions.written(0, &[key], plan.holder.token, plan.holder.timestamp);
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
            let decision = rules::acquire(only, &request, turn(ahead), self.terms(), &mut self.tokens, now);
            decision.map(|decision| Some(vec![decision]).filter(|decisions| decisions[0] != Acquire::Refuse))
        } else {
            rules::acquire_all(&states, &request, turn(ahead), self.terms(), &mut self.tokens, now)
        };
        let Ok(decisions) = decisions else { return self.tell(None, Told::OtherShare) };
        let Some(decisions) = decisions else {
            let taken = states.iter().position(|lock| !lock.is_nobodys());
            let behind = || call.keys.iter().position(|key| self.queues.has_ahead(0, &[*key], request.id));
            let at = taken.or_else(behind).unwrap_or(0);
            let due = states[at].free_at(request.share).unwrap_or(now);
            return self.refused(call, &request, at, due);
        };
        let plans: Vec<Plan> = decisions.iter().filter_map(Plan::of).collect();
        for (key, plan) in call.keys.iter().zip(&plans) {
            self.write(*key, plan);
        }
        for key in &call.keys {
            self.bind(*key, call.client, &plans[0].holder, call.session);
            let earlier = request.id.and_then(|id| self.queues.forget(0, &[*key], id)).and_then(|(_, waiter)| waiter);
            self.replaced(earlier);
        }
        self.granted(None, &plans, call.details);
    }

    pub(super) fn granted(&mut self, client: Option<usize>, plans: &[Plan], details: bool) {
        let before = plans[0].before.filter(|_| details).map(Token::get);
        self.tell(client, Told::Granted(plans[0].holder.token.get(), before));
    }

    fn replaced(&mut self, earlier: impl IntoIterator<Item = Waiter<()>>) {
        for waiter in earlier {
            self.tell(Some(usize::try_from(waiter.client).unwrap()), Told::Unblocked);
        }
    }

    fn refused(&mut self, call: &Call, request: &Request<'_>, at: usize, due: UnixMicros) {
        if call.waits {
            self.look_at_all();
            if self.closes_circle(call, request) {
                return self.tell(None, Told::Deadlock);
            }
            let Request { share, lease, id, .. } = *request;
            let (client, since) = (call.client as u64, MonotonicMicros(0));
            let waiter = Waiter {
                handle: (),
                client,
                share,
                lease,
                id,
                owner: None,
                shape: if call.details { ReplyShape::Details } else { ReplyShape::Token },
                session: call.session,
                since,
                until: MonotonicMicros(self.now + call.wait),
            };
            let joined = self.queues.join(0, &names(&call.keys), at, waiter);
            self.queues.set_due_by(joined.line.unwrap(), due);
            return self.replaced(joined.earlier);
        }
        if let Some(id) = request.id {
            let earlier = self.queues.keep_place(0, &names(&call.keys), id, self.kept_until(), MOST_PLACES);
            self.replaced(earlier);
        }
        self.tell(None, Told::Nil);
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
                let decision =
                    rules::recover(lock, &request, turn(ahead), self.terms(), &mut self.tokens, now).unwrap();
                match Plan::of(&decision) {
                    Some(plan) => {
                        self.write(*key, &plan);
                        self.granted(None, &[plan], true);
                    }
                    None => self.tell(None, Told::Nil),
                }
            }
            Step::Release { keys, grant } => {
                let (mut count, mut is_late, mut lines) = (0, false, Vec::new());
                let hold = |core: &mut Self, key: &u8| rules::release(core.look_at_key(*key), token(*grant));
                let held: Vec<u8> = keys.iter().filter(|key| hold(self, key) != Release::Over).copied().collect();
                let hands_off = keys.len() == 1 || !held.iter().any(|key| self.queues.has_parked(0, &[*key]));
                for key in held {
                    is_late |= hold(self, &key) == Release::Late;
                    lines.extend(self.pass_on(key, token(*grant), hands_off));
                    count += 1;
                }
                self.pass_on_parked(&lines);
                self.tell(None, Told::Number(if is_late && keys.len() == 1 { -1 } else { count }));
            }
            Step::Extend { keys, grant, lease } => {
                for key in keys {
                    self.look_at_key(*key);
                }
                let states: Vec<State<'_>> = keys.iter().map(|key| state(self.keys.get(key), now)).collect();
                let lease = Micros(*lease);
                let records = rules::extend_all(&states, token(*grant), lease, self.terms(), now).unwrap();
                let plan = |record| Plan::of(&Acquire::Prolong(record)).unwrap();
                let plans: Option<Vec<Plan>> = records.map(|records| records.into_iter().map(plan).collect());
                for (key, plan) in keys.iter().zip(plans.iter().flatten()) {
                    self.write(*key, plan);
                }
                self.tell(None, Told::Number(i64::from(plans.is_some())));
            }
            Step::Check { key, grant } => {
                let terms = self.terms();
                let left = rules::check(self.look_at_key(*key), token(*grant), terms, now);
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
                    let line = self.pass_on(*key, token, true);
                    self.pass_on_parked(&Vec::from_iter(line));
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
        self.expire();
        self.do_step(step, token);
        self.turn()
    }

    fn settings(&self) -> Settings {
        self.settings
    }

    fn disconnect(&mut self, client: usize) -> Vec<(Option<usize>, Told)> {
        self.now += 1;
        self.expire();
        self.queues.leave(client as u64, Some(self.kept_until()), MOST_PLACES);
        self.end_sessions(client);
        self.turn()
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

    fn line(&mut self, key: u8) -> Vec<usize> {
        self.queues.waiting(0, &[key]).map(|waiter| usize::try_from(waiter.client).unwrap()).collect()
    }
}

impl Core {
    /// As `serve::turn`.
    fn turn(&mut self) -> Vec<(Option<usize>, Told)> {
        let until = Some(self.kept_until());
        while let Some(waiter) = self.queues.time_out(MonotonicMicros(self.now), until, MOST_PLACES) {
            self.tell(Some(usize::try_from(waiter.client).unwrap()), Told::Nil);
        }
        self.expire();
        let now = self.at();
        self.queues.set_due_ready(now);
        self.queues.begin_iteration();
        let mut looks = 0;
        while let Some((line, _)) = self.queues.take_ready() {
            self.look_at(line);
            looks += 1;
            assert!(looks < 1_000, "it looks for ever");
            self.queues.set_due_ready(now);
        }
        std::mem::take(&mut self.told)
    }

    /// Native expiries, of which the server tells.
    fn expire(&mut self) {
        let (now, retention) = (self.at().0 / 1_000, self.retention());
        let over = |stored: &Stored| {
            let last = match stored {
                Stored::One(bytes) => match Value::read(bytes, || false) {
                    Value::Ours(record) => record.timestamp,
                    _ => panic!("not ours"),
                },
                Stored::Several(holders) => holders.ends().unwrap().1,
            };
            retention.expire_at_ms(last).is_some_and(|ms| ms < now)
        };
        let over: Vec<u8> = self.keys.iter().filter(|(_, stored)| over(stored)).map(|(key, _)| *key).collect();
        for key in over {
            self.keys.remove(&key);
            self.deleted(key);
        }
    }

    /// As `set::Before::change`.
    pub(super) fn forget_some(&self, holders: &mut Holders) {
        let retention = self.retention();
        for _ in 0..8 {
            let over = holders.to_forget(retention, self.at()).map(|holder| holder.token);
            let Some(over) = over else { break };
            holders.remove(over);
        }
    }

    /// As `waiting::got`.
    pub(super) fn bind(&mut self, key: u8, client: usize, holder: &Holder, session: bool) {
        if session {
            let binding = Binding { client: client as u64, token: holder.token, until: holder.timestamp };
            self.sessions.bind(0, &[key], binding, self.at());
        } else {
            self.sessions.unbind(0, &[key], holder.token);
        }
    }
}
