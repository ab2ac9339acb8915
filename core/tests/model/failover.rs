//! A master that is replaced: its replica may not know about a grant, and the master may not know about its demotion.
//!
//! The crate's own `Reign` and `Settings` decide whether a server may grant. The model around them consists of a master
//! with replicas, a stream of writes that each replica follows with any lag, acknowledgements that a master reads late
//! after a stall, and a promotion at any moment. The server's own count of good replicas, which can be very old, is
//! assumed to be always sufficient.

mod conditions;
mod servers;

use redis_lock_core::lock::grace::{Answer, Reign};
use redis_lock_core::lock::time::{MonotonicMicros, UnixMicros};
use redis_lock_core::lock::token::Tokens;
use stateright::{Model, Property};

const SECOND: u64 = 1_000_000;
const START_S: u64 = 1_763_710_000;
/// With this lag, a turn of the loop may take a second.
const MAX_LAG_S: u8 = 2;
const MARGIN_S: u8 = 3;
const LEASE_S: u8 = 1;
/// The shortest grace for this lease: the lease plus the margin, max-lag and two seconds.
const GRACE_S: u8 = LEASE_S + MARGIN_S + MAX_LAG_S + 2;

/// The parts of failover safety that are present.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is one part of the condition.
struct Condition {
    /// `lock.failover-grace-ms`, in seconds, of the master and of its replicas.
    grace_s: [u8; 2],
    /// When the grace is set.
    grace_set_at: u8,
    replicas: u8,
    min_replicas: u8,
    /// Whether the master notices that it stalled.
    notices_stalls: bool,
    /// Whether the master notices that its clock was set.
    notices_clock: bool,
    /// Whether acknowledgements from before it stalled are ignored.
    only_new_answers: bool,
    /// How many times the master may be stopped and its clock set back.
    stalls: u8,
    clock_steps: u8,
    /// By how much its clock is set back.
    clock_step_s: i8,
    /// Whether the server's loop can stall several times between two reads of its sockets.
    slow_turns: bool,
    /// Whether a turn of the loop may take as long as the margin.
    long_turns: bool,
    /// The lease that clients ask for before the grace is set, in seconds.
    early_lease_s: u8,
    end: u8,
}

/// What a server knows about the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Store {
    key: Option<Vec<u8>>,
    tokens: Tokens,
}

/// A replica, as seen by its master and as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Replica {
    /// How much of the stream it has.
    has: u8,
    /// An acknowledgement that the master has not read.
    unread: Option<u8>,
    /// Whether the acknowledgement arrived before the last cron, so that this turn of the loop reads it.
    is_overdue: bool,
    /// The last acknowledgement that the master read: how much of the stream it covers, and when the master read it, by
    /// its wall clock.
    read: (u8, i8),
}

/// The server that is the master at first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Master {
    store: Store,
    reign: Reign,
    /// What was replicated: a value of the key, or just a PING (`None`).
    stream: Vec<Option<Vec<u8>>>,
    cron_at: u8,
    /// How much its wall clock is behind, in seconds.
    behind: i8,
    is_stalled: bool,
    /// Whether it has not yet read its sockets since its last stall.
    has_unread_input: bool,
    clock_was_set: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Idle,
    /// Its LOCK.ACQUIRE is on its way.
    Asked {
        at: u8,
    },
    Holds {
        until: u8,
    },
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    master: Master,
    replicas: Vec<Replica>,
    /// The first replica, once it is promoted.
    promoted: Option<(Store, Reign)>,
    clients: [Client; 2],
    stalls: u8,
    clock_steps: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    ASecondPasses,
    /// The first client sends LOCK.ACQUIRE to the old master, which may take a long time to read it.
    Ask,
    Arrive,
    /// The second client gets its answer from the new master at once.
    AskNewMaster,
    Replicate(usize),
    Ping,
    Acknowledge(usize),
    ReadAcknowledgement(usize),
    Cron,
    Stall,
    Resume,
    /// A LOCK.* command for another key.
    OtherCommand,
    SetClockBack,
    Promote,
}

#[derive(Clone)]
struct Failover {
    is: Condition,
}

const EXCLUSION: &str = "at most one client believes it holds the lock";

const fn monotonic(now: u8) -> MonotonicMicros {
    MonotonicMicros(now as u64 * SECOND)
}

fn wall(now: u8, behind: i8) -> UnixMicros {
    UnixMicros((START_S + u64::from(now)).saturating_add_signed(-i64::from(behind)) * SECOND)
}

impl Model for Failover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // It has been the master for a long time: its own grace has ended.
        let long_ago = Reign::begin(MonotonicMicros(0));
        let master = Master {
            store: Store::default(),
            reign: long_ago,
            stream: Vec::new(),
            cron_at: FIRST_S,
            behind: 0,
            is_stalled: false,
            has_unread_input: false,
            clock_was_set: false,
        };
        let replica = Replica { has: 0, unread: None, is_overdue: false, read: (0, i8::try_from(FIRST_S).unwrap()) };
        let mut state = State {
            now: FIRST_S,
            master,
            replicas: vec![replica; usize::from(self.is.replicas)],
            promoted: None,
            clients: [Client::Idle; 2],
            stalls: self.is.stalls,
            clock_steps: self.is.clock_steps,
        };
        state.master.reign.begin_turn(&self.settings(0, u8::MAX), monotonic(FIRST_S));
        // There was a stall of many seconds, and the replicas have answered since then.
        let all = vec![Answer { offset: 1, lag_s: 0 }; usize::from(self.is.replicas)];
        state.master.reign.inspect(&self.settings(0, u8::MAX), 0, &all, monotonic(FIRST_S));
        state.master.reign.inspect(&self.settings(0, u8::MAX), 0, &all, monotonic(FIRST_S));
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let master = &state.master;
        // Each client asks once, so once one of them is done, two can no longer hold the lock.
        if state.clients.contains(&Client::Done) {
            return;
        }
        match state.clients[0] {
            Client::Idle => actions.push(Action::Ask),
            Client::Asked { .. } if !master.is_stalled => actions.push(Action::Arrive),
            _ => {}
        }
        if state.promoted.is_some() && state.clients[1] == Client::Idle {
            actions.push(Action::AskNewMaster);
        }
        for (number, replica) in state.replicas.iter().enumerate() {
            if number > 0 || state.promoted.is_none() {
                if usize::from(replica.has) < master.stream.len() {
                    actions.push(Action::Replicate(number));
                }
                if replica.unread != Some(replica.has) {
                    actions.push(Action::Acknowledge(number));
                }
            }
            if replica.unread.is_some() && !master.is_stalled {
                actions.push(Action::ReadAcknowledgement(number));
            }
        }
        if state.promoted.is_none() && state.now >= self.is.grace_set_at {
            actions.push(Action::Promote);
        }
        if master.is_stalled {
            actions.push(Action::Resume);
        } else {
            if master.cron_at != state.now && state.replicas.iter().all(|replica| !replica.is_overdue) {
                actions.push(Action::Cron);
            }
            if state.stalls > 0 && (self.is.slow_turns || !master.has_unread_input) {
                actions.push(Action::Stall);
            }
            if master.reign.is_doubtful() && master.stream.len() < 2 {
                actions.push(Action::Ping);
            }
            if self.is.slow_turns {
                actions.push(Action::OtherCommand);
            }
            if state.clock_steps > 0 {
                actions.push(Action::SetClockBack);
            }
        }
        // A healthy loop reads what has arrived, and runs its cron, every second.
        if state.now < self.is.end + FIRST_S && (master.is_stalled || Self::is_up_to_date(state)) {
            actions.push(Action::ASecondPasses);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let now = state.now;
        match action {
            Action::ASecondPasses => next.now += 1,
            Action::Ask => next.clients[0] = Client::Asked { at: now },
            Action::Arrive => self.arrive(&mut next),
            Action::AskNewMaster => self.ask_new_master(&mut next),
            Action::Replicate(number) => next.replicas[number].has += 1,
            Action::Ping => next.master.stream.push(None),
            Action::Acknowledge(number) => next.replicas[number].unread = Some(state.replicas[number].has),
            Action::ReadAcknowledgement(number) => {
                let wall_s = i8::try_from(now).unwrap() - state.master.behind;
                let replica = &mut next.replicas[number];
                replica.is_overdue = false;
                replica.read = (replica.unread.take()?, wall_s);
            }
            Action::Cron => self.cron(&mut next),
            Action::Stall => {
                next.stalls -= 1;
                next.master.is_stalled = true;
            }
            Action::Resume => {
                next.master.is_stalled = false;
                next.master.has_unread_input = true;
            }
            Action::OtherCommand => {
                let settings = self.settings(0, now);
                self.may_grant(&mut next.master.reign, &settings, now);
            }
            Action::SetClockBack => {
                next.clock_steps -= 1;
                next.master.behind += self.is.clock_step_s;
                next.master.clock_was_set = true;
            }
            Action::Promote => {
                let has = usize::from(state.replicas[0].has);
                let key = state.master.stream[..has].iter().flatten().next_back().cloned();
                next.promoted = Some((Store { key, tokens: Tokens::new() }, Reign::begin(monotonic(now))));
            }
        }
        if Self::is_up_to_date(&next) {
            next.master.has_unread_input = false;
        }
        if let Some((_, reign)) = next.promoted.as_mut() {
            reign.begin_turn(&self.settings(1, next.now), monotonic(next.now));
        }
        for client in &mut next.clients {
            if matches!(client, Client::Holds { until } if *until <= next.now) {
                *client = Client::Done;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                state.clients.iter().filter(|client| matches!(client, Client::Holds { .. })).count() <= 1
            }),
            Property::sometimes("the old master grants after it was replaced", |_, state: &State| {
                state.promoted.is_some()
                    && matches!(state.clients[0], Client::Holds { until } if until == state.now + LEASE_S)
            }),
            Property::sometimes("the new master grants", |_, state: &State| {
                matches!(state.clients[1], Client::Holds { .. })
            }),
        ]
    }
}

/// The time at which the model begins.
const FIRST_S: u8 = 20;
