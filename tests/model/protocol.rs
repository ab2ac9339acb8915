//! Clients, network and one server: every order of what they can do, within the bounds of a [`Scope`].
//!
//! Time passes in whole seconds, at any moment. A command and its reply can be on their way for any time, be lost, or
//! arrive when their sender has long given up. After `horizon` nobody begins anything new, and what is under way is
//! brought to its end: then nobody may be left waiting.

mod steps;

use crate::clients::{Client, Kind, Phase, Who, Witness};
use crate::line::{id, Stand};
use crate::server::{Call, Mutant, Reply, Server, Settings};
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
const START_S_FLOAT: f64 = 1_763_710_000.0;

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

    fn seconds(number: u8) -> Micros {
        Micros(SECOND.0 * u64::from(number))
    }

    fn settings(&self) -> Settings {
        let Scope { retention, mutant, .. } = self.scope;
        Settings { margin: Self::seconds(self.scope.margin), retention, mutant }
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
        let lease = Self::seconds(self.scope.lease);
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
                Stand::Place(id) => Some(Action::PlaceOver(*id)),
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
    fn under_way(state: &State, actions: &mut Vec<Action>) {
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
        Self::under_way(state, actions);
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
                // Due times were noted by the clock of before.
                next.server.look_at_all();
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
                    if letter.is_on_its_way {
                        next.witness.leave(Who::of(letter.conn, letter.id));
                    }
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
        rules::State::Foreign | rules::State::Several(_) => {
            let expire_at_ms = server.key.as_ref().and_then(|stored| stored.expire_at_ms);
            expire_at_ms.map(|at| UnixMicros((at + 1) * 1_000))
        }
    };
    free_at.is_none_or(|free_at| server.line.due.is_some_and(|due| due <= free_at))
}
