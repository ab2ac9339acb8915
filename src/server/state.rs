//! What the module remembers between calls.

use super::blocked::{Handle, Lost};
use super::context::{log_warning, Arg, Context};
use super::main_thread::MainThread;
use super::session::Ended;
use super::stats::Stats;
use super::timer::Timer;
use super::{clock, settings};
use crate::lock::error::Error;
use crate::lock::queue::Queues;
use crate::lock::record::{number, Id};
use crate::lock::rules::Retention;
use crate::lock::sessions::Sessions;
use crate::lock::time::{Micros, MonotonicMicros, UnixMicros};
use crate::lock::token::Tokens;
use lazy_static::lazy_static;
use std::collections::VecDeque;

/// How old what is known of the server's configuration may be, where it does not tell of changes.
const CONFIG_AGE: Micros = Micros(1_000_000);

/// What the module remembers.
#[derive(Default)]
pub struct State {
    /// The tokens that it gave.
    pub tokens: Tokens,
    /// Who waits.
    pub queues: Queues<Handle>,
    /// Grants that nobody received.
    pub lost: VecDeque<Lost>,
    /// Which locks end with their connection.
    pub sessions: Sessions,
    /// Grants whose connection has ended.
    pub ended: VecDeque<Ended>,
    /// What has happened.
    pub stats: Stats,
    /// How far the wall clock was ahead of the monotonic one when both were last looked at.
    pub wall_ahead: Option<u64>,
    /// The timer, while it runs.
    pub timer: Option<Timer>,
    /// When every line was last looked at.
    pub looked_at_all: MonotonicMicros,
    /// The server tells of keys that come free.
    pub listens: bool,
    /// The server tells of connections that end.
    pub watches_clients: bool,
    server: Server,
}

impl State {
    /// Whether somebody waits for a key of the caller's database ahead of the attempt `id`, or of a
    /// newcomer.
    #[must_use]
    pub fn others_ahead(&self, context: &Context, name: Arg<'_>, id: Option<Id>) -> bool {
        !self.queues.is_empty() && self.queues.has_ahead(context.selected_db(), name.as_bytes(), id)
    }

    /// Whether the server may evict locks to free memory.
    #[must_use]
    pub fn can_be_evicted(&self) -> bool {
        self.server.evicts_all
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
    /// When to look again; never where the server tells of changes.
    look_again: Option<UnixMicros>,
    /// CLIENT UNBLOCK can be served without a fault of the server.
    can_be_unblocked: bool,
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
    if server(context).evicts_volatile {
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

/// Whether CLIENT UNBLOCK is safe: before Redis 7.4 and Valkey 8.0 the callback that it needs can
/// lose a reply or end the server.
#[must_use]
pub fn can_be_unblocked() -> bool {
    with(|state| state.server.can_be_unblocked).unwrap_or(false)
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
    let before = with(|state| state.server.evicts_all).unwrap_or(false);
    let server = Server {
        evicts_volatile: policy.as_ref().is_some_and(|name| name.starts_with("volatile-")),
        evicts_all: policy.as_ref().is_some_and(|name| name.starts_with("allkeys-")),
        min_replicas: min_replicas.and_then(|text| number(text.as_bytes())).unwrap_or(0),
        look_again: (!told).then(|| clock::now().after(CONFIG_AGE)),
        can_be_unblocked: can_be_unblocked(),
    };
    let _ = with(|state| state.server = server);
    if server.evicts_all && !before {
        log_warning("maxmemory-policy evicts any key: a lock that is evicted is free, whoever holds it");
    }
    server
}

/// The configuration of the server has changed, and it tells of that.
pub(super) fn configuration_changed(context: &Context) {
    read_server(context, true);
}

/// Looks at the server for the first time; `told`: it says when its configuration changes.
pub(super) fn loaded(context: &Context, told: bool) {
    let version = |field| context.server_info(c"server", field);
    let number_of = |text: Option<String>, part: usize| -> Option<u64> {
        text.and_then(|text| text.split('.').nth(part).and_then(|digits| number(digits.as_bytes())))
    };
    let valkey = number_of(version(c"valkey_version"), 0);
    let major = number_of(version(c"redis_version"), 0);
    let minor = number_of(version(c"redis_version"), 1);
    let can_be_unblocked = match valkey {
        Some(valkey) => valkey >= 8,
        None => (major, minor) >= (Some(7), Some(4)),
    };
    // A module that was unloaded and is loaded again may find what it left.
    let _ = with(|state| *state = State::default());
    let _ = with(|state| state.server.can_be_unblocked = can_be_unblocked);
    read_server(context, told);
}
