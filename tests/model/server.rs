//! The server of the model: one key and its queue. What it decides, it asks the crate's own rules, queue, sessions
//! and tokens, in the order in which `src/commands` and `src/server` ask them; the key holds the bytes that they write.

mod timer;

use crate::line::{self, Line, Over, Waits, DB, KEY, MOST_PLACES, NEVER};
use redis_lock::engine::queue::Waiter;
use redis_lock::engine::sessions::{Binding, Sessions};
use redis_lock::lock::record::{Id, Record, Value};
use redis_lock::lock::rules::{self, Acquire, Predecessor, Release, Request, Retention, Share, Terms};
use redis_lock::lock::time::{Micros, UnixMicros};
use redis_lock::lock::token::{Token, Tokens};
use std::collections::{BTreeMap, VecDeque};

/// A rule that is broken on purpose, to see that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// An expired lock is taken over a second before its timestamp.
    TakesOverEarly,
    /// LOCK.RELEASE does not compare the token.
    ReleasesWithoutComparing,
    /// The ID of an attempt is not looked at.
    IgnoresIds,
    /// The first who waits gets the lock without a new look at the key.
    GrantsWithoutLooking,
    /// A newcomer gets a free lock although others wait.
    LetsOvertake,
    /// A release deletes the key and wakes nobody.
    WakesNobody,
    /// Nobody notes when the lock of a line comes free by itself.
    ForgetsDueTimes,
    /// Who leaves the line has no place any more.
    ForgetsPlaces,
    /// A grant that nobody received stays.
    ForgetsLostGrants,
    /// A grant that nobody received passes on although its attempt has asked again.
    PassesOnWhatWasToldAgain,
    /// An attempt that was cancelled while its grant was on its way has its place back if nobody received that.
    RestoresCancelledPlaces,
    /// Contenders wait no longer than the holder may work.
    NoMargin,
    /// A session that ends leaves its holder no margin.
    EndsSessionsAtOnce,
    /// A token is the time of the grant and nothing else.
    TokensByClock,
}

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub margin: Micros,
    pub retention: Retention,
    pub mutant: Mutant,
}

impl Settings {
    fn terms(self) -> Terms {
        Terms { margin: if self.mutant == Mutant::NoMargin { Micros(0) } else { self.margin } }
    }

    fn is(self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }
}

/// What the key holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    pub bytes: Vec<u8>,
    pub expire_at_ms: Option<u64>,
}

/// Whom a grant succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Before {
    ended: UnixMicros,
    token: Option<Token>,
}

impl Before {
    fn of(predecessor: Predecessor<'_>) -> Self {
        Self { ended: predecessor.ended, token: predecessor.token }
    }

    fn record(self, token: Token) -> Record<'static> {
        Record { timestamp: self.ended, token: self.token.unwrap_or(token), id: None, owner: None }
    }
}

/// A grant on its way to a client that waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Letter {
    pub conn: u64,
    pub id: Option<Id>,
    succeeds: Option<Before>,
    /// Its attempt was not told of it in another way.
    pub is_on_its_way: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Token(Token),
    Nil,
    Unblocked,
    Number(i8),
}

/// LOCK.ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub conn: u64,
    pub id: Option<Id>,
    pub waits: bool,
    pub session: bool,
    pub lease: Micros,
}

/// What a step of the server did, for those who watch it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum News {
    Granted { conn: u64, id: Option<Id>, token: Token },
    Renewed { token: Token },
    Extended { token: Token },
    Over { token: Token },
    CutShort { token: Token, until: UnixMicros },
    Undelivered { token: Token },
    Answer { conn: u64, reply: Reply },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    pub key: Option<Stored>,
    pub tokens: Tokens,
    pub line: Line,
    pub binding: Option<Binding>,
    pub ended: Option<(Token, UnixMicros)>,
    pub letters: BTreeMap<Token, Letter>,
    lost: VecDeque<(Token, Option<Before>)>,
    /// Taken away before a state is compared with others.
    pub news: Vec<News>,
}

/// A decision, copied out of the key.
struct Plan {
    token: Token,
    succeeds: Option<Before>,
    is_new: bool,
    write: Option<(Vec<u8>, UnixMicros)>,
}

impl Plan {
    fn of(decision: &Acquire<'_>) -> Option<Self> {
        let (record, succeeds, is_new) = match decision {
            Acquire::Grant { record, succeeds, .. } => (record, succeeds.map(Before::of), true),
            Acquire::Prolong(record) | Acquire::Keep(record) => (record, None, false),
            Acquire::Refuse => return None,
        };
        let writes = !matches!(decision, Acquire::Keep(_));
        let write = writes.then(|| (record.encode().as_bytes().to_vec(), record.timestamp));
        Some(Self { token: record.token, succeeds, is_new, write })
    }
}

fn value(key: Option<&Stored>) -> Option<Value<'_>> {
    key.map(|stored| Value::read(&stored.bytes, || stored.expire_at_ms.is_some()))
}

impl Server {
    /// What the key is to everybody but its writer.
    pub fn lock(&self, now: UnixMicros) -> rules::State<'_> {
        rules::State::of(value(self.key.as_ref()), now)
    }

    /// Whether the timer has something to do.
    pub fn has_work(&self, now: UnixMicros) -> bool {
        self.line.is_ready
            || !self.lost.is_empty()
            || self.ended.is_some()
            || self.line.due.is_some_and(|due| due <= now)
    }

    /// Whether a grant waits to be passed on.
    pub fn is_lost(&self, token: Token) -> bool {
        self.lost.iter().any(|(lost, _)| *lost == token)
    }

    pub fn is_any_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The native expiry, found by whoever opens the key.
    pub fn let_expire(&mut self, now: UnixMicros) {
        if self.is_past_native_expiry(now) {
            self.deleted_by_others();
        }
    }

    pub fn is_past_native_expiry(&self, now: UnixMicros) -> bool {
        let expire_at_ms = self.key.as_ref().and_then(|stored| stored.expire_at_ms);
        expire_at_ms.is_some_and(|at| now.0 / 1_000 > at)
    }

    /// The look at all lines that the module takes within a second.
    pub fn look_at_all(&mut self) {
        self.line.step(Over::Nobodys, |queues, _| queues.look_again());
    }

    /// DEL or an expiry: the server tells of it.
    pub fn deleted_by_others(&mut self) {
        self.key = None;
        self.line.step(Over::Nobodys, |queues, _| line::line(queues).map(|line| queues.set_ready(line)));
    }

    fn sessions(&mut self, now: UnixMicros, step: impl FnOnce(&mut Sessions)) {
        let mut sessions = Sessions::default();
        if let Some(binding) = self.binding.take() {
            sessions.bind(DB, KEY, binding, now);
        }
        step(&mut sessions);
        self.binding = sessions.bindings(DB, KEY).next().cloned();
    }

    fn store(&mut self, settings: Settings, (bytes, timestamp): (Vec<u8>, UnixMicros), token: Token, now: UnixMicros) {
        let expire_at_ms = settings.retention.expire_at_ms(timestamp);
        self.key = Some(Stored { bytes, expire_at_ms });
        self.ended = None;
        self.sessions(now, |sessions| {
            sessions.written(DB, KEY, token, timestamp);
            sessions.unbind_others(DB, KEY, Some(token));
        });
        self.line.step(Over::Nobodys, |queues, _| {
            if let Some(line) = line::line(queues) {
                queues.set_due(line, Some(timestamp));
            }
        });
    }

    fn delete(&mut self, now: UnixMicros) {
        self.deleted_by_others();
        self.sessions(now, |sessions| sessions.unbind_others(DB, KEY, None));
    }

    fn decide(&mut self, settings: Settings, request: &Request<'_>, ahead: bool, now: UnixMicros) -> Option<Plan> {
        let early = if settings.is(Mutant::TakesOverEarly) { Micros(1_000_000) } else { Micros(0) };
        let lock = rules::State::of(value(self.key.as_ref()), now.after(early));
        let mut tokens = if settings.is(Mutant::TokensByClock) { Tokens::new() } else { self.tokens.clone() };
        let lock = match lock {
            rules::State::Expired(at, _) if settings.is(Mutant::TokensByClock) => rules::State::Expired(at, None),
            lock => lock,
        };
        let plan = Plan::of(
            &rules::acquire(
                lock,
                request,
                if ahead { rules::Turn::Behind } else { rules::Turn::Now },
                settings.terms(),
                &mut tokens,
                now,
            )
            .unwrap(),
        );
        self.tokens = tokens;
        plan
    }

    /// LOCK.ACQUIRE; no reply when its client waits.
    pub fn acquire(&mut self, settings: Settings, call: &Call, now: UnixMicros) -> Option<Reply> {
        self.let_expire(now);
        let id = call.id.filter(|_| !settings.is(Mutant::IgnoresIds));
        let request = Request { share: Share::Alone, lease: call.lease, id, owner: None };
        let ahead = !settings.is(Mutant::LetsOvertake)
            && !self.line.is_empty()
            && self.line.step(Over::Nobodys, |queues, _| queues.has_ahead(DB, KEY, id));
        let Some(plan) = self.decide(settings, &request, ahead, now) else {
            return self.refused(settings, call, id, now);
        };
        let Plan { token, is_new, write, .. } = plan;
        if let Some(write) = write {
            self.store(settings, write, token, now);
        }
        self.news.push(if is_new {
            News::Granted { conn: call.conn, id: call.id, token }
        } else {
            News::Renewed { token }
        });
        self.got(call, id, token, now);
        Some(Reply::Token(token))
    }

    fn refused(&mut self, settings: Settings, call: &Call, id: Option<Id>, now: UnixMicros) -> Option<Reply> {
        let due = match self.lock(now) {
            rules::State::Held(until, _) => Some(until),
            // The key of the model has one holder.
            rules::State::Foreign | rules::State::Several(_) => self.foreign_due(),
            rules::State::Free | rules::State::Expired(..) => Some(now),
        };
        let due = due.filter(|_| !settings.is(Mutant::ForgetsDueTimes));
        let waits = Waits { conn: call.conn, id, session: call.session, lease: call.lease };
        let earlier = self.line.step(Over::Nobodys, |queues, _| match id {
            _ if call.waits => {
                let joined = queues.join(DB, &[KEY], 0, waits.with_end(NEVER));
                if let Some(line) = joined.line {
                    queues.set_due(line, due);
                }
                joined.earlier
            }
            Some(id) if !settings.is(Mutant::ForgetsPlaces) => queues.keep_place(DB, &[KEY], id, NEVER, MOST_PLACES),
            _ => Vec::new(),
        });
        self.replaced(earlier);
        (!call.waits).then_some(Reply::Nil)
    }

    fn replaced(&mut self, earlier: impl IntoIterator<Item = Waiter<()>>) {
        self.news
            .extend(earlier.into_iter().map(|waiter| News::Answer { conn: waiter.client, reply: Reply::Unblocked }));
    }

    fn foreign_due(&self) -> Option<UnixMicros> {
        let expire_at_ms = self.key.as_ref()?.expire_at_ms?;
        Some(UnixMicros(0).after(Micros::from_ms(expire_at_ms + 1)))
    }

    /// As `waiting::got`: an attempt got the lock without waiting, or is told of it again.
    fn got(&mut self, call: &Call, id: Option<Id>, token: Token, now: UnixMicros) {
        let until = match self.lock(now) {
            rules::State::Held(until, _) | rules::State::Expired(until, _) => until,
            _ => now,
        };
        let binding = Binding { client: call.conn, token, until };
        self.sessions(now, |sessions| {
            if call.session {
                sessions.bind(DB, KEY, binding, now);
            } else {
                sessions.unbind(DB, KEY, token);
            }
        });
        self.ended = None;
        let Some(id) = id else { return };
        if let Some(letter) = self.letters.get_mut(&token) {
            letter.is_on_its_way = false;
        }
        self.lost.retain(|(lost, _)| *lost != token);
        let earlier =
            self.line.step(Over::Nobodys, |queues, _| queues.forget(DB, KEY, id).and_then(|(_, waiter)| waiter));
        self.replaced(earlier);
    }

    /// LOCK.RELEASE.
    pub fn release(&mut self, settings: Settings, token: Token, now: UnixMicros) -> Reply {
        self.let_expire(now);
        let released = match rules::release(self.lock(now), token) {
            Release::Over if settings.is(Mutant::ReleasesWithoutComparing) && self.key.is_some() => Release::InTime,
            released => released,
        };
        if released != Release::Over {
            self.pass_on(settings, token, now);
        }
        Reply::Number(match released {
            Release::InTime => 1,
            Release::Late => -1,
            Release::Over => 0,
        })
    }

    /// As `waiting::pass_on`.
    fn pass_on(&mut self, settings: Settings, token: Token, now: UnixMicros) {
        self.news.push(News::Over { token });
        if settings.is(Mutant::WakesNobody) {
            self.key = None;
            return;
        }
        let Some(head) = self.line.waiting().next().cloned() else { return self.delete(now) };
        let waiter = head.with_end(NEVER);
        let decision = rules::pass_on(token, &waiter.request(), settings.terms(), &mut self.tokens, now).unwrap();
        if let Some(plan) = Plan::of(&decision) {
            self.give(settings, plan, now);
        }
    }

    /// The first in line gets the lock and is told.
    fn give(&mut self, settings: Settings, plan: Plan, now: UnixMicros) {
        let Plan { token, succeeds, write, .. } = plan;
        let until = write.as_ref().map_or(now, |(_, timestamp)| *timestamp);
        if let Some(write) = write {
            self.store(settings, write, token, now);
        }
        let head = self.line.step(Over::Nobodys, |queues, tickets| {
            let (ticket, waiter) = queues.pop_head(line::line(queues)?)?;
            tickets.insert(token, ticket);
            Some(Waits::of(&waiter))
        });
        let Some(Waits { conn, id, session, .. }) = head else { return };
        if session {
            self.sessions(now, |sessions| sessions.bind(DB, KEY, Binding { client: conn, token, until }, now));
        }
        self.letters.insert(token, Letter { conn, id, succeeds, is_on_its_way: true });
        self.news.push(News::Granted { conn, id, token });
    }

    /// LOCK.EXTEND.
    pub fn extend(&mut self, settings: Settings, token: Token, lease: Micros, now: UnixMicros) -> Reply {
        self.let_expire(now);
        let extended = rules::extend(self.lock(now), token, lease, settings.terms(), now).unwrap();
        let write = extended.map(|record| (record.encode().as_bytes().to_vec(), record.timestamp));
        let is_extended = write.is_some();
        if let Some(write) = write {
            self.store(settings, write, token, now);
            self.news.push(News::Extended { token });
        }
        Reply::Number(i8::from(is_extended))
    }

    /// LOCK.CANCEL.
    pub fn cancel(&mut self, settings: Settings, id: Id, now: UnixMicros) -> Reply {
        self.let_expire(now);
        let found = self.line.step(Over::Nobodys, |queues, _| queues.forget(DB, KEY, id));
        let stood = found.is_some();
        if let Some((_, Some(waiter))) = found {
            self.news.push(News::Answer { conn: waiter.client, reply: Reply::Nil });
        }
        let held = rules::held_by(self.lock(now), id);
        if let Some(token) = held {
            if let (Some(letter), false) = (self.letters.get_mut(&token), settings.is(Mutant::RestoresCancelledPlaces))
            {
                letter.is_on_its_way = false;
            }
            self.pass_on(settings, token, now);
        }
        Reply::Number(i8::from(stood || held.is_some()))
    }
}
