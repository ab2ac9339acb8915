//! What the module remembers between calls.

use super::clock;
use super::context::Context;
use super::main_thread::MainThread;
use super::settings;
use crate::lock::error::Error;
use crate::lock::rules::Retention;
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Tokens;

/// How old what is known of the eviction policy may be, where the server does not tell of changes.
const POLICY_AGE: Micros = Micros(1_000_000);

/// What the module remembers.
pub struct State {
    /// The tokens that it gave.
    pub tokens: Tokens,
    policy: Policy,
}

/// What is known of `maxmemory-policy`.
struct Policy {
    /// It evicts keys that have a native expiry, and only those.
    is_volatile: bool,
    /// When to look again; never where the server tells of changes.
    look_again: Option<UnixMicros>,
}

static STATE: MainThread<State> = MainThread::new(State {
    tokens: Tokens::new(),
    policy: Policy { is_volatile: false, look_again: Some(UnixMicros(0)) },
});

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
    let known = with(|state| match state.policy.look_again {
        Some(at) if clock::now() >= at => None,
        _ => Some(state.policy.is_volatile),
    });
    let is_volatile = match known {
        Ok(Some(is_volatile)) => is_volatile,
        _ => read_policy(context, false),
    };
    if is_volatile {
        Retention::Forever
    } else {
        settings::retention()
    }
}

/// Reads the eviction policy; `told`: the server says when it changes.
pub(super) fn read_policy(context: &Context, told: bool) -> bool {
    let policy = context.server_info(c"memory", c"maxmemory_policy");
    let is_volatile = policy.is_some_and(|name| name.starts_with("volatile-"));
    let look_again = (!told).then(|| clock::now().after(POLICY_AGE));
    let _ = with(|state| state.policy = Policy { is_volatile, look_again });
    is_volatile
}
