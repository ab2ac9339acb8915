//! Clients, a network and one server: every order of their steps, within the bounds of a [`Scope`].
//!
//! Time passes in whole seconds, at any moment. A command and its reply can be under way for any length of time, be
//! lost, or arrive long after their sender has given up. After `horizon` no client begins anything new, and everything
//! under way is brought to an end. Then no client may be left waiting.

mod actions;
mod plain;
mod steps;

use crate::clients::{Client, Command, Kind};
use crate::fake::{Mutant, Settings};
use crate::server::Server;
use crate::witness::Witness;
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::retention::Retention;
use redis_lock_core::lock::state::State as Lock;
use redis_lock_core::lock::time::{Micros, UnixMicros};
use stateright::{Model, Property};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const SECOND: Micros = Micros(1_000_000);
/// The only key.
const DB: i32 = 0;
const KEY: &[u8] = b"door";

/// The length of a wait or of the reservation of a place. Both end at any moment that the model chooses, or never.
/// Those that end do so hours after they began, on a clock that moves only then.
const NEVER: Micros = Micros(u64::MAX);
const HOUR: Micros = Micros(3_600 * SECOND.0);

/// How many times something may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub crashes: u8,
    /// A client gives up a command and sends it again, with the same ID.
    pub resends: u8,
    /// A command that was given up still arrives later.
    pub late: u8,
    pub extends: u8,
    pub cancels: u8,
    pub time_outs: u8,
    /// A connection breaks.
    pub breaks: u8,
    pub places_over: u8,
    /// The server's clock is set a second forward or back.
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

/// Events that were seen, so that no property holds only because it was never tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    HandOff,
    TakeOver,
    ReportedAgain,
    Undelivered,
    PassedOn,
    StaleRelease,
    LateCommand,
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
    pub server: Server,
    pub clients: Vec<Client>,
    /// Commands on connections that their clients have given up.
    late: Vec<Command>,
    pub witness: Witness,
    left: Budget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    ASecondPasses,
    ClockAhead,
    ClockBack,
    Ask(usize),
    AskAgain {
        who: usize,
        first_arrives_late: bool,
    },
    Cancel(usize),
    Extend(usize),
    Release(usize),
    Crash(usize),
    ConnectionBreaks(usize),
    /// `gives_up`: whether a wait that the command begins will end on its own.
    Arrive {
        who: usize,
        gives_up: bool,
    },
    ArriveLate,
    ReadReply(usize),
    Deliver(u64),
    /// [`Keeps`]: what happens to the place of a waiter that leaves.
    HangUp(u64, Keeps),
    /// The next wait or place that has an end ends.
    EndComes(Keeps),
    NativeExpiry,
    Timer,
    Setnx(usize),
    Get(usize),
    Getset(usize),
    Del(usize),
    SetNxPx(usize),
    CompareAndDelete(usize),
}

/// How long a place is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    ForEver,
    /// Until a moment before the end of all waits that have one.
    Briefly,
    /// Until a moment after that end.
    Longer,
}

pub const EXCLUSION: &str = "at most one client believes it holds the lock";
pub const GRANTS: &str =
    "grants follow the order, each with a larger token and after the one before; a holder gets its token again";
pub const WAKE_UP: &str = "a lock that nobody has and somebody waits for is about to be tried";
pub const LOST: &str = "a grant that nobody received is about to be passed on";
pub const SERVED: &str = "in the end nobody waits";

impl Protocol {
    pub fn new(scope: Scope) -> Self {
        Self { scope, facts: Arc::new(std::array::from_fn(|_| AtomicU64::new(0))) }
    }

    /// How many times this happened, over all states.
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
        let limits = Limits { place: NEVER, ..Settings::default().limits };
        // A change to a key without an event is found at once: a server that reports no events is inspected each time.
        let reports_keys = false;
        let margin = Self::seconds(self.scope.margin);
        Settings { margin, retention, limits, reports_keys, mutant, ..Settings::default() }
    }

    /// When the last client waiting at the horizon must have been served.
    fn end(&self) -> u8 {
        let clients = u8::try_from(self.scope.clients.len()).unwrap();
        self.scope.horizon + (clients + 1) * (self.scope.lease + self.scope.margin + 2)
    }

    fn id(number: u64) -> Id {
        Id::parse(number.to_string().as_bytes()).unwrap()
    }

    /// The ID of a client's attempt.
    fn attempt(&self, state: &State, who: usize) -> Option<Id> {
        let has_ids = matches!(self.scope.clients[who].0, Kind::Lock { has_ids: true, .. });
        has_ids.then(|| Self::id(who as u64 * 3 + 1 + u64::from(state.clients[who].attempt.min(2))))
    }

    fn command(&self, state: &State, who: usize) -> Command {
        let (waits, session) = match self.scope.clients[who].0 {
            Kind::Lock { waits, session, .. } => (waits, session),
            _ => (false, false),
        };
        let lease = Self::seconds(self.scope.lease);
        Command { conn: state.clients[who].conn(who), id: self.attempt(state, who), waits, session, lease }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            server: Server::start(self.settings()),
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
            // A grant's reply leaves the server, or is found to have no reader, in the same turn of the loop.
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
        if !self.client_step(&mut next, &action) {
            let node = state.server.copy();
            if !self.server_step(&mut next, &node, &action) {
                return None;
            }
            self.watch(&mut next, &node);
            next.server = Server::of(node);
        }
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
            Property::always(GRANTS, |_, state: &State| state.witness.violation.is_none()),
            Property::always(WAKE_UP, |_, state: &State| is_awake(state)),
            Property::always(LOST, |_, state: &State| {
                !state.witness.is_lost_grant_live() || is_timer_due(&state.server)
            }),
            Property::always(SERVED, |model: &Self, state: &State| {
                state.now < model.end() || state.server.blocked.is_empty() || {
                    let mut actions = Vec::new();
                    model.actions(state, &mut actions);
                    !actions.is_empty()
                }
            }),
        ]
    }
}

/// Whether the timer fires now.
fn is_timer_due(server: &Server) -> bool {
    server.inspect(|node| node.timer_at().is_some_and(|at| at <= node.world.borrow().wall))
}

/// Whether the server will try to serve the awaited lock no later than the end of its last holder.
fn is_awake(state: &State) -> bool {
    if state.server.blocked.is_empty() {
        return true;
    }
    state.server.inspect(|node| {
        let (place, now) = (steps::place(), node.world.borrow().wall);
        let free_at = node.with_lock(&place, |lock| match lock {
            Lock::Held(until, _) => Some(until),
            Lock::Free | Lock::Expired(..) => Some(now),
            Lock::Foreign | Lock::Several(_) => {
                let expire_at_ms = node.world.borrow().keys.get(&place).and_then(|stored| stored.expire_at_ms);
                expire_at_ms.map(|at_ms| UnixMicros((at_ms + 1) * 1_000))
            }
        });
        // The timer counts milliseconds.
        free_at.is_none_or(|free_at| node.timer_at().is_some_and(|at| at.0 / 1_000 <= free_at.as_ms_ceil()))
    })
}
