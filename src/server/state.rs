//! What the module remembers between calls.

use super::blocked::{Handle, Lost};
use super::context::{log_warning, Arg, Context};
use super::grant::Taken;
use super::kept::Kept;
use super::leases::Leases;
use super::main_thread::MainThread;
use super::recoveries::Recoveries;
use super::session::Ended;
use super::stats::Stats;
use super::timer::{self, Timer, Wake};
use super::version::Version;
use super::{clock, failover, settings};
use crate::broken::{self, Mutant};
use crate::engine::queue::Queues;
use crate::engine::sessions::{LockKey, Sessions};
use crate::lock::clocks::Clocks;
use crate::lock::error::Error;
use crate::lock::grace::{self, Reign};
use crate::lock::record::{number, Id};
use crate::lock::rules::Retention;
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use crate::lock::token::{Token, Tokens};
use lazy_static::lazy_static;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// How old what is known of the server's configuration may be, where it does not tell of changes.
const CONFIG_AGE: Micros = Micros(1_000_000);

/// `min-replicas-max-lag` where it is 0 (off), or the operator took CONFIG away.
const DEFAULT_MAX_LAG_S: u64 = 10;

/// What the module remembers.
#[derive(Default)]
pub struct State {
    /// The tokens that it gave.
    pub tokens: Tokens,
    /// Who waits.
    pub queues: Queues<Handle>,
    /// Grants of attempts with an ID that succeeded somebody: their reply can be lost.
    recoveries: Recoveries,
    /// Grants whose answer has not left yet: to be passed on if it does not arrive, unless the attempt
    /// has meanwhile been told in another way.
    pub on_their_way: FxHashSet<Token>,
    /// Grants that nobody received.
    pub lost: VecDeque<Lost>,
    /// Which locks end with their connection.
    pub sessions: Sessions,
    /// Grants whose connection has ended.
    pub ended: BTreeMap<(LockKey, Token), Ended>,
    /// The last of them that was taken.
    last_ended: Option<(LockKey, Token)>,
    /// The holders of locks with many.
    pub kept: Kept,
    /// Since when this server is the master, and whether it still is.
    pub reign: Reign,
    /// Whether this server was in its grace when last looked at, as last logged.
    pub grace_is_on: bool,
    /// What is wrong with the settings for safety across failover, as last logged.
    pub grace_fault: Option<grace::Fault>,
    /// What is wrong with the limit of waiters, as last logged.
    want_of_room: Option<String>,
    /// The latest timestamp that was written.
    pub latest: UnixMicros,
    /// When the settings for safety across failover were last looked at.
    pub looked_at_grace: MonotonicMicros,
    /// What has happened.
    pub stats: Stats,
    /// How the clocks stood to each other when they were last compared.
    pub clocks: Clocks,
    /// The timer, while it runs.
    pub timer: Option<Timer>,
    /// The leases that waiters may have asked for.
    pub leases: Leases,
    /// Until when writing is put off: the server did not let the module write.
    pub postponed: Option<MonotonicMicros>,
    /// The same for lost grants and ended sessions alone: the server refused to write some of them.
    pub rest_postponed: Option<MonotonicMicros>,
    /// When every line was last looked at.
    pub looked_at_all: MonotonicMicros,
    /// The server tells of keys that come free.
    pub listens: bool,
    /// The server tells of connections that end.
    pub watches_clients: bool,
    version: Option<Version>,
    server: Server,
}

impl State {
    /// Whether the module may listen to generic keyspace events.
    #[must_use]
    pub fn can_be_listened_to(&self) -> bool {
        self.version.is_some_and(Version::can_be_listened_to)
    }

    /// An attempt with an ID got a lock, for the first time or again: its predecessor there is remembered for a
    /// while, and reported again when the attempt is sent again. `lock` is the number of the lock in the grant.
    pub fn remember_or_recall(&mut self, name: &[u8], lock: usize, taken: &mut Taken) {
        let now = clock::monotonic();
        if let Some(before) = taken.before(lock) {
            self.recoveries.remember(name, taken.token, before.clone(), now);
        } else if let Some(before) = self.recoveries.recall(name, taken.token, now) {
            taken.recall(lock, before.clone());
        }
    }

    /// Whether somebody waits for a key of the caller's database ahead of the attempt `id`, or of a
    /// newcomer.
    #[must_use]
    pub fn others_ahead(&self, context: &Context, name: Arg<'_>, id: Option<Id>) -> bool {
        !self.queues.is_empty()
            && self.queues.has_ahead(context.selected_db(), name.as_bytes(), id)
            && !broken::is(Mutant::Barging)
    }

    /// Takes a grant whose connection has ended, each in its turn: one that cannot be ended now does not come again
    /// before the others.
    pub fn next_ended(&mut self) -> Option<((LockKey, Token), Ended)> {
        let behind = self.last_ended.take().map(|last| (Bound::Excluded(last), Bound::Unbounded));
        let next = behind.and_then(|behind| self.ended.range(behind).next());
        let next = next.or_else(|| self.ended.first_key_value()).map(|(lock, _)| lock.clone());
        self.last_ended.clone_from(&next);
        self.ended.remove_entry(&next?)
    }

    /// The first of several keys for which somebody waits ahead of the attempt `id`, or of a newcomer.
    #[must_use]
    pub fn first_ahead(&self, context: &Context, names: &[Arg<'_>], id: Option<Id>) -> Option<usize> {
        if self.queues.is_empty() || broken::is(Mutant::Barging) {
            return None;
        }
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        self.queues.first_ahead(context.selected_db(), &names, id)
    }

    /// What is left of the time in which a new master grants nothing.
    #[must_use]
    pub fn grace_left(&self) -> Micros {
        self.reign.grace_left(&self.server.grace_settings(), clock::monotonic())
    }

    /// Whether the server may evict locks to free memory.
    #[must_use]
    pub fn can_be_evicted(&self) -> bool {
        self.server.evicts_all
    }

    /// When the module has to run next.
    #[must_use]
    pub fn wake(&self) -> Wake {
        let is_ready = self.queues.has_ready() && !broken::is(Mutant::LostWakeUp);
        let ready = is_ready.then_some(self.postponed);
        let rest = (!self.lost.is_empty() || !self.ended.is_empty()).then(|| self.postponed.max(self.rest_postponed));
        let leases = self.leases.has_work().then_some(None);
        let work = [ready, rest, leases].into_iter().flatten().map(|postponed| postponed.unwrap_or(timer::AT_ONCE));
        let end = self.queues.next_end().into_iter().chain(work).min();
        Wake { end, due: self.queues.next_due() }
    }

    /// Whether something is to be done now rather than at some time.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.queues.has_ready() || !self.lost.is_empty() || !self.ended.is_empty()
    }
}

/// What is known of the server, read when the module is loaded.
#[derive(Clone, Copy, Default)]
struct Server {
    /// `maxmemory-policy` evicts keys that have a native expiry, and only those.
    evicts_volatile: bool,
    /// `maxmemory-policy` evicts any key.
    evicts_all: bool,
    /// `min-replicas-to-write`.
    min_replicas: u64,
    /// `min-replicas-max-lag`
    max_lag: Micros,
    /// When to look again; never where the server tells of changes.
    look_again: Option<UnixMicros>,
}

impl Server {
    fn grace_settings(&self) -> grace::Settings {
        grace::Settings {
            grace: settings::failover_grace(),
            margin: settings::terms().margin,
            max_lag: self.max_lag,
            wanted: self.min_replicas,
        }
    }
}

lazy_static! {
    static ref STATE: MainThread<State> = MainThread::new(State::default());
}

/// Lends the state to `body`, which must not call into the server where that can call back.
///
/// # Errors
/// [`Error::Internal`] when it is lent already.
pub fn with<R>(body: impl FnOnce(&mut State) -> R) -> Result<R, Error> {
    STATE.with(body).ok_or(Error::Internal)
}

/// The retention in force: under a `volatile-*` policy a native expiry would let a lock be
/// evicted, so there is none.
#[must_use]
pub fn retention(context: &Context) -> Retention {
    if server(context).evicts_volatile || broken::is(Mutant::NoExpiry) {
        Retention::Forever
    } else {
        settings::retention()
    }
}

/// `min-replicas-to-write` of the server.
#[must_use]
pub fn min_replicas(context: &Context) -> u64 {
    server(context).min_replicas
}

/// What the safety across failover depends on.
#[must_use]
pub fn grace_settings(context: &Context) -> grace::Settings {
    // Without a grace nothing else matters.
    let server = if settings::failover_grace() == Micros(0) { Server::default() } else { server(context) };
    server.grace_settings()
}

/// Whether CLIENT UNBLOCK of a waiter may be allowed.
#[must_use]
pub fn can_be_unblocked() -> bool {
    with(|state| state.version.is_some_and(Version::can_be_unblocked)).unwrap_or(false)
}

/// Whether the module may listen to generic keyspace events.
#[must_use]
pub fn can_be_listened_to() -> bool {
    with(|state| state.can_be_listened_to()).unwrap_or(false)
}

fn server(context: &Context) -> Server {
    let known = with(|state| match state.server.look_again {
        Some(at) if clock::now() >= at => None,
        _ => Some(state.server),
    });
    match known {
        Ok(Some(server)) => server,
        _ => read_server(context, false),
    }
}

/// Reads what is to be known of the server; `told`: it says when its configuration changes.
fn read_server(context: &Context, told: bool) -> Server {
    let policy = context.server_info(c"memory", c"maxmemory_policy");
    let min_replicas = context.config(c"min-replicas-to-write");
    let max_lag_s = context.config(c"min-replicas-max-lag").and_then(|text| number(text.as_bytes()));
    let before = with(|state| state.server.evicts_all).unwrap_or(false);
    let server = Server {
        evicts_volatile: policy.as_ref().is_some_and(|name| name.starts_with("volatile-")),
        evicts_all: policy.as_ref().is_some_and(|name| name.starts_with("allkeys-")),
        min_replicas: min_replicas.and_then(|text| number(text.as_bytes())).unwrap_or(0),
        max_lag: Micros::from_ms(
            max_lag_s.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_MAX_LAG_S).saturating_mul(1_000),
        ),
        look_again: (!told).then(|| clock::now().after(CONFIG_AGE)),
    };
    let max_clients = context.config(c"maxclients").and_then(|text| number(text.as_bytes()));
    let want_of_room = max_clients.and_then(|most| settings::want_of_room(settings::max_waiters(), most));
    let is_news = with(|state| {
        state.server = server;
        let before = std::mem::replace(&mut state.want_of_room, want_of_room.clone());
        before != want_of_room
    });
    if let (Some(text), Ok(true)) = (want_of_room, is_news) {
        log_warning(&text);
    }
    if server.evicts_all && !before {
        log_warning("maxmemory-policy evicts any key: a lock that is evicted is free, whoever holds it");
    }
    server
}

/// The configuration of the server has changed, and it tells of that.
pub(super) fn configuration_changed(context: &Context) {
    read_server(context, true);
    failover::look_for_fault(context);
}

/// Gives back what was remembered: the module is unloaded.
pub(super) fn unload() {
    let _ = with(|state| {
        *state = State::default();
        state.stats.unload();
    });
}

/// Looks at the server for the first time; `told`: it says when its configuration changes.
pub(super) fn loaded(context: &Context, told: bool) {
    let version = context.version();
    failover::look_at_role(context);
    // A module that was unloaded and is loaded again may find what it left.
    let reign = Reign::begin(clock::monotonic());
    let _ = with(|state| *state = State { reign, version: Some(version), ..State::default() });
    read_server(context, told);
    failover::look_for_fault(context);
}
