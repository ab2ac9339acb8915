//! Clients, network and one server: every order of what they can do, within the bounds of a [`Scope`].
//!
//! Time passes in whole seconds, at any moment. A command and its reply can be on their way for any time, be lost, or
//! arrive when their sender has long given up. After `horizon` nobody begins anything new, and what is under way is
//! brought to its end: then nobody may be left waiting.

use crate::clients::{Client, Kind, Phase, Sent, Who, Witness};
use crate::line::id;
use crate::server::{Call, Mutant, News, Reply, Server, Settings, Stored};
use redis_lock::lock::record::Id;
use redis_lock::lock::rules::{self, Retention};
use redis_lock::lock::time::{Micros, UnixMicros};
use redis_lock::lock::token::Token;
use stateright::{Model, Property};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const SECOND: Micros = Micros(1_000_000);
/// The time of the server at the start of the model.
const START_S: u64 = 1_763_710_000;

/// How often something may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub crashes: u8,
    /// A client gives up a call and sends it again, with the same ID.
    pub resends: u8,
    /// A call that was given up arrives all the same, later.
    pub late: u8,
    pub extends: u8,
    pub cancels: u8,
    pub time_outs: u8,
    /// A connection breaks.
    pub breaks: u8,
    pub places_over: u8,
    /// The clock of the server is set a second forward, or back.
    pub clock_ahead: u8,
    pub clock_back: u8,
}

/// Who takes part, and within which bounds.
#[derive(Clone, Debug)]
pub struct Scope {
    pub clients: Vec<(Kind, u8)>,
    pub lease: u8,
    pub margin: u8,
    pub retention: Retention,
    pub horizon: u8,
    pub budget: Budget,
    pub mutant: Mutant,
}

/// What was seen to happen, so that nothing holds only because it never came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    HandOff,
    TakeOver,
    ToldAgain,
    Undelivered,
    PassedOn,
    StaleRelease,
    LateCall,
    PlaceTaken,
    Extended,
    SessionEnded,
    ClassicTakeOver,
    ForeignWait,
}

#[derive(Clone, Debug)]
pub struct Protocol {
    pub scope: Scope,
    pub facts: Arc<[AtomicU64; 12]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u8,
    /// How far the server's clock is ahead of the time, in seconds.
    ahead: i8,
    pub server: Server,
    pub clients: Vec<Client>,
    /// Calls on connections that their clients have given up.
    late: Vec<Call>,
    pub witness: Witness,
    left: Budget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    ASecondPasses,
    ClockAhead,
    ClockBack,
    Ask(usize),
    AskAgain { who: usize, first_arrives_late: bool },
    Cancel(usize),
    Extend(usize),
    Release(usize),
    Crash(usize),
    ConnectionBreaks(usize),
    Arrive(usize),
    ArriveLate,
    ReadReply(usize),
    Deliver(Token),
    HangUp(u64),
    TimeOut(u64),
    PlaceOver(Id),
    NativeExpiry,
    Timer,
    Setnx(usize),
    Get(usize),
    Getset(usize),
    Del(usize),
    SetNxPx(usize),
    CompareAndDelete(usize),
}

pub const EXCLUSION: &str = "at most one client believes to hold the lock";
pub const GRANTS: &str = "each grant follows the order, with a larger token, after the one before; who holds is told";
pub const WAKE_UP: &str = "a lock that nobody has and somebody waits for is about to be looked at";
pub const LOST: &str = "a grant that nobody received is about to be passed on";
pub const SERVED: &str = "in the end nobody waits";

impl Protocol {
    pub fn new(scope: Scope) -> Self {
        Self { scope, facts: Arc::new(std::array::from_fn(|_| AtomicU64::new(0))) }
    }

    /// How often that happened, over all states.
    pub fn count(&self, fact: Fact) -> u64 {
        self.facts[fact as usize].load(Ordering::Relaxed)
    }

    fn note(&self, fact: Fact) {
        self.facts[fact as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn seconds(&self, number: u8) -> Micros {
        Micros(SECOND.0 * u64::from(number))
    }

    fn settings(&self) -> Settings {
        let Scope { retention, mutant, .. } = self.scope;
        Settings { margin: self.seconds(self.scope.margin), retention, mutant }
    }

    /// When the last of those who wait at the horizon must have been served.
    fn end(&self) -> u8 {
        let clients = u8::try_from(self.scope.clients.len()).unwrap();
        self.scope.horizon + (clients + 1) * (self.scope.lease + self.scope.margin + 2)
    }

    /// The clock of the server.
    fn wall(state: &State) -> UnixMicros {
        let seconds = (START_S + u64::from(state.now)).saturating_add_signed(i64::from(state.ahead));
        UnixMicros(SECOND.0 * seconds)
    }

    /// The ID of a client's attempt.
    fn attempt(&self, state: &State, who: usize) -> Option<Id> {
        let has_ids = matches!(self.scope.clients[who].0, Kind::Lock { has_ids: true, .. });
        has_ids.then(|| id(who as u64 * 3 + 1 + u64::from(state.clients[who].attempt.min(2))))
    }

    fn call(&self, state: &State, who: usize) -> Call {
        let (waits, session) = match self.scope.clients[who].0 {
            Kind::Lock { waits, session, .. } => (waits, session),
            _ => (false, false),
        };
        let lease = self.seconds(self.scope.lease);
        Call { conn: state.clients[who].conn(who), id: self.attempt(state, who), waits, session, lease }
    }

    /// Connections that the server knows and their clients have closed, with nothing on its way there.
    fn dead_conns(state: &State) -> Vec<u64> {
        let is_open = |conn: u64| {
            let who = usize::try_from(conn / 10).unwrap();
            state.clients[who].conn(who) == conn && state.clients[who].phase != Phase::Crashed
        };
        let waiting = state.server.line.waiting().map(|waits| waits.conn);
        let told = state.server.letters.values().map(|letter| letter.conn);
        let bound = state.server.binding.iter().map(|binding| binding.client);
        let mut conns: Vec<u64> = waiting.chain(told).chain(bound).filter(|conn| !is_open(*conn)).collect();
        conns.retain(|conn| state.late.iter().all(|call| call.conn != *conn));
        conns.sort_unstable();
        conns.dedup();
        conns
    }

    fn new_beginnings(&self, state: &State, actions: &mut Vec<Action>) {
        let left = &state.left;
        for (who, client) in state.clients.iter().enumerate() {
            let kind = self.scope.clients[who].0;
            let has_id = self.attempt(state, who).is_some();
            match (client.phase, kind) {
                (Phase::Idle, _) if client.asks == 0 => {}
                (Phase::Idle, Kind::Lock { .. }) => actions.push(Action::Ask(who)),
                (Phase::Idle, Kind::Getset) => actions.push(Action::Setnx(who)),
                (Phase::Idle, Kind::SetNxPx) => actions.push(Action::SetNxPx(who)),
                (Phase::Refused, _) => actions.push(Action::Get(who)),
                (Phase::SawExpired, _) => actions.push(Action::Getset(who)),
                (Phase::Holding, Kind::Getset) if client.believes_until > state.now => actions.push(Action::Del(who)),
                (Phase::Holding, Kind::SetNxPx) => actions.push(Action::CompareAndDelete(who)),
                (Phase::Holding, Kind::Lock { session, .. }) => {
                    actions.push(Action::Release(who));
                    if left.extends > 0 {
                        actions.push(Action::Extend(who));
                    }
                    if session && left.breaks > 0 {
                        actions.push(Action::ConnectionBreaks(who));
                    }
                }
                (Phase::Asking, _) if has_id => {
                    if left.resends > 0 {
                        actions.push(Action::AskAgain { who, first_arrives_late: false });
                        if left.late > 0 && client.outbox.is_some() {
                            actions.push(Action::AskAgain { who, first_arrives_late: true });
                        }
                    }
                    if left.cancels > 0 {
                        actions.push(Action::Cancel(who));
                    }
                }
                _ => {}
            }
            if left.crashes > 0 && matches!(client.phase, Phase::Asking | Phase::Holding) {
                actions.push(Action::Crash(who));
            }
        }
        if left.time_outs > 0 {
            actions.extend(state.server.line.waiting().map(|waits| Action::TimeOut(waits.conn)));
        }
        if left.places_over > 0 {
            let places = state.server.line.stands.iter().filter_map(|stand| match stand {
                crate::line::Stand::Place(id) => Some(Action::PlaceOver(*id)),
                _ => None,
            });
            actions.extend(places);
        }
        if left.clock_ahead > 0 {
            actions.push(Action::ClockAhead);
        }
        if left.clock_back > 0 {
            actions.push(Action::ClockBack);
        }
    }

    /// What goes on by itself.
    fn under_way(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.late.is_empty() {
            actions.push(Action::ArriveLate);
        }
        for (who, client) in state.clients.iter().enumerate() {
            if client.outbox.is_some() {
                actions.push(Action::Arrive(who));
            }
            if client.inbox.is_some() {
                actions.push(Action::ReadReply(who));
            }
        }
        actions.extend(state.server.letters.keys().map(|token| Action::Deliver(*token)));
        actions.extend(Self::dead_conns(state).into_iter().map(Action::HangUp));
        let wall = Self::wall(state);
        if state.server.is_past_native_expiry(wall) {
            actions.push(Action::NativeExpiry);
        }
        if state.server.has_work(wall) {
            actions.push(Action::Timer);
        }
    }

    fn acquire(&self, next: &mut State, call: &Call) -> Option<Reply> {
        let wall = Self::wall(next);
        let must_be_told = next.witness.must_be_told(call, wall);
        let kept_place =
            next.server.line.stands.iter().any(|stand| Some(stand) == call.id.map(crate::line::Stand::Place).as_ref());
        let is_foreign = matches!(next.server.lock(wall), rules::State::Foreign);
        let had_expired = matches!(next.server.lock(wall), rules::State::Expired(..));
        let reply = next.server.acquire(self.settings(), call, wall);
        if must_be_told.is_some() && reply != must_be_told.map(Reply::Token) {
            next.witness.fault = Some(crate::clients::Fault::NotTold);
        }
        let who = Who::of(call.conn, call.id);
        match reply {
            Some(Reply::Token(_)) => {
                if must_be_told.is_some() {
                    self.note(Fact::ToldAgain);
                } else if had_expired {
                    self.note(Fact::TakeOver);
                }
            }
            None => {
                if is_foreign {
                    self.note(Fact::ForeignWait);
                }
                if kept_place {
                    self.note(Fact::PlaceTaken);
                }
            }
            _ => {}
        }
        let is_refused = reply.is_none() || (reply == Some(Reply::Nil) && call.id.is_some());
        self.watch(next);
        if is_refused {
            next.witness.arrive(who);
        } else {
            next.witness.leave(who);
        }
        reply
    }

    /// Shows the witness what the server did, and puts the replies on their way.
    fn watch(&self, next: &mut State) {
        let wall = Self::wall(next);
        let term = Micros(self.seconds(self.scope.lease).0 + self.seconds(self.scope.margin).0);
        for news in std::mem::take(&mut next.server.news) {
            next.witness.see(&news, &next.server, term, wall);
            match news {
                News::Answer { conn, reply } => Self::send(next, conn, reply),
                News::Undelivered { .. } => self.note(Fact::Undelivered),
                News::CutShort { .. } => self.note(Fact::SessionEnded),
                _ => {}
            }
        }
    }

    /// A reply leaves the server; it is lost if its client has closed the connection.
    fn send(next: &mut State, conn: u64, reply: Reply) {
        let who = usize::try_from(conn / 10).unwrap();
        let client = &mut next.clients[who];
        if client.conn(who) == conn && client.phase != Phase::Crashed {
            client.inbox = Some(reply);
        }
    }

    fn arrive(&self, next: &mut State, who: usize) {
        let Some(sent) = next.clients[who].outbox.take() else { return };
        let (settings, wall, lease) = (self.settings(), Self::wall(next), self.seconds(self.scope.lease));
        let letters = next.server.letters.len();
        let reply = match sent {
            Sent::Acquire(call) => self.acquire(next, &call),
            Sent::Extend(token) => Some(next.server.extend(settings, token, lease, wall)),
            Sent::Release(token) => Some(next.server.release(settings, token, wall)),
            Sent::Cancel(id) => {
                let reply = next.server.cancel(settings, id, wall);
                next.witness.leave(Who::Attempt(id));
                Some(reply)
            }
        };
        match (next.clients[who].phase, reply) {
            (Phase::Leaving, Some(Reply::Number(0))) => self.note(Fact::StaleRelease),
            (Phase::Extending, Some(Reply::Number(1))) => self.note(Fact::Extended),
            _ => {}
        }
        if next.server.letters.len() > letters {
            self.note(Fact::HandOff);
        }
        if let Some(reply) = reply {
            next.clients[who].inbox = Some(reply);
        }
    }

    /// The steps of clients.
    fn client_step(&self, next: &mut State, action: &Action) {
        let now = next.now;
        match *action {
            Action::Ask(who) => {
                let call = self.call(next, who);
                let client = &mut next.clients[who];
                client.asks -= 1;
                client.phase = Phase::Asking;
                client.sent_at = now;
                client.outbox = Some(Sent::Acquire(call));
            }
            Action::AskAgain { who, first_arrives_late } => {
                next.left.resends -= 1;
                if first_arrives_late {
                    next.left.late -= 1;
                    if let Some(Sent::Acquire(call)) = next.clients[who].outbox.take() {
                        next.late.push(call);
                    }
                }
                next.clients[who].reconnect();
                let call = self.call(next, who);
                next.clients[who].sent_at = now;
                next.clients[who].outbox = Some(Sent::Acquire(call));
            }
            Action::Cancel(who) => {
                next.left.cancels -= 1;
                let id = self.attempt(next, who);
                let client = &mut next.clients[who];
                client.reconnect();
                client.rest();
                client.attempt += 1;
                client.phase = Phase::Leaving;
                client.outbox = id.map(Sent::Cancel);
            }
            Action::Extend(who) => {
                next.left.extends -= 1;
                let client = &mut next.clients[who];
                client.phase = Phase::Extending;
                client.sent_at = now;
                client.outbox = client.token.map(Sent::Extend);
            }
            Action::Release(who) => {
                let client = &mut next.clients[who];
                client.outbox = client.token.map(Sent::Release);
                client.rest();
                client.phase = Phase::Leaving;
            }
            Action::Crash(who) => {
                next.left.crashes -= 1;
                let client = &mut next.clients[who];
                client.rest();
                client.reconnect();
                client.phase = Phase::Crashed;
            }
            Action::ConnectionBreaks(who) => {
                next.left.breaks -= 1;
                let client = &mut next.clients[who];
                client.reconnect();
                // It notices within the margin.
                client.believes_until = client.believes_until.min(now + self.scope.margin);
            }
            Action::ReadReply(who) => {
                if let Some(reply) = next.clients[who].inbox.take() {
                    next.clients[who].read(reply, self.scope.lease);
                }
            }
            _ => self.plain_step(next, action),
        }
    }

    /// The steps of clients that lock with plain commands; each is one command, done at once.
    fn plain_step(&self, next: &mut State, action: &Action) {
        let now = next.now;
        let own_clock_s = START_S + u64::from(now);
        let timestamp = own_clock_s + u64::from(self.scope.lease + self.scope.margin);
        next.server.let_expire(Self::wall(next));
        let key = next.server.key.clone();
        let is_expired = |stored: &Stored| classic_seconds(&stored.bytes).is_some_and(|at| at <= own_clock_s as f64);
        let mine = |text: String, expire_at_ms| Some(Stored { bytes: text.into_bytes(), expire_at_ms });
        let take = |client: &mut Client| {
            client.phase = Phase::Holding;
            client.believes_until = now + self.scope.lease;
        };
        match *action {
            Action::Setnx(who) | Action::Getset(who) if key.is_none() => {
                next.clients[who].asks -= u8::from(matches!(action, Action::Setnx(_)));
                next.server.key = mine(timestamp.to_string(), None);
                take(&mut next.clients[who]);
            }
            Action::Setnx(who) => {
                next.clients[who].asks -= 1;
                next.clients[who].phase = Phase::Refused;
            }
            Action::Get(who) => {
                let saw = if key.as_ref().is_some_and(is_expired) { Phase::SawExpired } else { Phase::Idle };
                next.clients[who].phase = saw;
            }
            Action::Getset(who) => {
                next.witness.overwritten();
                next.server.key = mine(timestamp.to_string(), None);
                next.clients[who].phase = Phase::Idle;
                if key.as_ref().is_some_and(is_expired) {
                    take(&mut next.clients[who]);
                    self.note(Fact::ClassicTakeOver);
                }
            }
            Action::SetNxPx(who) => {
                next.clients[who].asks -= 1;
                if key.is_none() {
                    let end = Self::wall(next).after(self.seconds(self.scope.lease));
                    next.server.key = mine(format!("owner-{who}"), Some(end.0 / 1_000));
                    take(&mut next.clients[who]);
                }
            }
            Action::CompareAndDelete(who) => {
                if key.is_some_and(|stored| stored.bytes == format!("owner-{who}").into_bytes()) {
                    next.server.deleted_by_others();
                }
                next.clients[who].rest();
            }
            Action::Del(who) => {
                next.server.deleted_by_others();
                next.witness.overwritten();
                next.clients[who].rest();
            }
            _ => {}
        }
    }
}

/// The number that a client of the pattern reads: a float.
fn classic_seconds(bytes: &[u8]) -> Option<f64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            ahead: 0,
            server: Server::default(),
            clients: self.scope.clients.iter().map(|(_, asks)| Client::new(*asks)).collect(),
            late: Vec::new(),
            witness: Witness::default(),
            left: self.scope.budget,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.under_way(state, actions);
        if state.now < self.scope.horizon {
            self.new_beginnings(state, actions);
            // The reply of a grant leaves the server, or is found to have no reader, in the turn of its loop.
            if state.server.letters.is_empty() {
                actions.push(Action::ASecondPasses);
            }
        } else {
            actions.truncate(1);
            if actions.is_empty() && state.now < self.end() {
                actions.push(Action::ASecondPasses);
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let (settings, wall) = (self.settings(), Self::wall(state));
        match action {
            Action::ASecondPasses => next.now += 1,
            Action::ClockAhead => {
                next.left.clock_ahead -= 1;
                next.ahead += 1;
            }
            Action::ClockBack => {
                next.left.clock_back -= 1;
                next.ahead -= 1;
            }
            Action::Arrive(who) => self.arrive(&mut next, who),
            Action::ArriveLate => {
                let call = next.late.remove(0);
                self.note(Fact::LateCall);
                // Its client is gone, so is the reply.
                self.acquire(&mut next, &call);
            }
            Action::Deliver(token) => {
                if let Some(letter) = next.server.deliver(token) {
                    next.witness.leave(Who::of(letter.conn, letter.id));
                    Self::send(&mut next, letter.conn, Reply::Token(token));
                }
            }
            Action::HangUp(conn) => {
                next.witness.leave(Who::Conn(conn));
                next.server.hang_up(settings, conn, wall);
            }
            Action::TimeOut(conn) => {
                next.left.time_outs -= 1;
                next.witness.leave(Who::Conn(conn));
                next.server.time_out(settings, conn);
            }
            Action::PlaceOver(id) => {
                next.left.places_over -= 1;
                next.witness.leave(Who::Attempt(id));
                next.server.give_place_up(id);
            }
            Action::NativeExpiry => next.server.let_expire(wall),
            Action::Timer => {
                let was_lost = next.server.is_any_lost();
                next.server.turn(settings, wall);
                if was_lost && next.server.letters.len() > state.server.letters.len() {
                    self.note(Fact::PassedOn);
                }
            }
            ref step => self.client_step(&mut next, step),
        }
        self.watch(&mut next);
        next.witness.forget(Self::wall(&next));
        for client in &mut next.clients {
            if client.believes_until <= next.now {
                client.believes_until = 0;
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                state.clients.iter().filter(|client| client.believes_until > state.now).count() <= 1
            }),
            Property::always(GRANTS, |_, state: &State| state.witness.fault.is_none()),
            Property::always(WAKE_UP, |_, state: &State| is_awake(state)),
            Property::always(LOST, |_, state: &State| !state.witness.lost_grant_stands(&state.server)),
            Property::always(SERVED, |model: &Self, state: &State| {
                state.now < model.end() || state.server.line.waiting().next().is_none() || {
                    let mut actions = Vec::new();
                    model.actions(state, &mut actions);
                    !actions.is_empty()
                }
            }),
        ]
    }
}

/// Whether the server will look at the lock that somebody waits for when nobody has it any more, at the latest.
fn is_awake(state: &State) -> bool {
    let wall = Protocol::wall(state);
    let server = &state.server;
    if server.line.waiting().next().is_none() || server.has_work(wall) {
        return true;
    }
    let free_at = match server.lock(wall) {
        rules::State::Free | rules::State::Expired(..) => return false,
        rules::State::Held(until, _) => Some(until),
        rules::State::Foreign => {
            let expire_at_ms = server.key.as_ref().and_then(|stored| stored.expire_at_ms);
            expire_at_ms.map(|at| UnixMicros((at + 1) * 1_000))
        }
    };
    free_at.is_none_or(|free_at| server.line.due.is_some_and(|due| due <= free_at))
}
