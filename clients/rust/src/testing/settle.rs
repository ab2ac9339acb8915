//! Waits until everything that was caused has settled.

#[cfg(feature = "blocking")]
use std::sync::PoisonError;
use std::time::Duration;
#[cfg(feature = "tokio")]
use std::time::Instant;

#[cfg(feature = "tokio")]
use tokio::runtime::{Handle, RuntimeFlavor};

use super::time::Moved;
use crate::sync::locked;

/// How long work may take until it is no longer waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the application's own threads must leave the locks alone.
const PAUSE: Duration = Duration::from_millis(5);
/// How often other tasks get a turn after the last of the work that is counted.
#[cfg(feature = "tokio")]
const TURNS: u32 = 50;
/// After this many turns, a single-threaded runtime has nothing left to do until the caller continues.
#[cfg(feature = "tokio")]
const MANY_TURNS: u32 = 2000;

#[cfg(feature = "blocking")]
impl Moved {
    /// Waits until no work is in progress. If `is_last`, or a caller's call has returned, the application's threads get
    /// a little time too.
    pub(super) fn settle(&self, is_last: bool) {
        self.wait_until_idle();
        let mut lingers = std::mem::take(&mut locked(&self.state).has_returned) || is_last;
        while lingers {
            let before = locked(&self.state).changes;
            std::thread::sleep(PAUSE);
            self.wait_until_idle();
            lingers = locked(&self.state).changes != before;
        }
    }

    fn wait_until_idle(&self) {
        let state = locked(&self.state);
        let waited = self.idle.wait_timeout_while(state, PATIENCE, |state| !state.is_idle());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.ignored = state.busy;
    }
}

#[cfg(feature = "tokio")]
impl Moved {
    /// Waits until no work is in progress, and other tasks have had many turns. If `is_last`, or a caller's call has
    /// returned, the application's other threads get a little time too.
    pub(super) async fn settled(&self, is_last: bool) {
        let is_alone = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
        let lingers = !is_alone && (std::mem::take(&mut locked(&self.state).has_returned) || is_last);
        let (mut turns, mut before, mut since) = (0_u32, 0, Instant::now());
        loop {
            tokio::task::yield_now().await;
            let mut state = locked(&self.state);
            if state.changes != before {
                (turns, before, since) = (0, state.changes, Instant::now());
                continue;
            }
            turns = turns.saturating_add(1);
            let quiet = since.elapsed();
            if state.is_idle() {
                if turns >= TURNS && (!lingers || quiet >= PAUSE) {
                    state.ignored = state.busy;
                    return;
                }
            } else if quiet >= PATIENCE || is_alone && turns >= MANY_TURNS && quiet >= PAUSE.saturating_mul(10) {
                state.ignored = state.busy;
                return;
            }
        }
    }
}
