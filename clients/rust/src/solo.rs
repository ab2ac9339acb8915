//! The one line on which the only wait of a manager blocks: one round trip, where NOTIFY takes two and a message.
//!
//! It is for processes that do one thing at a time. From the second attempt that waits at the same time on, all attempts
//! wait by NOTIFY. While the line is open, calls keep to one connection, so that there are never more than three in all; a
//! crowd of calls ends it too.

use std::sync::{Arc, Mutex};

use crate::engine::Engine;
use crate::judge::Fault;
use crate::line::Line;
use crate::sync::locked;

#[derive(Default)]
pub(crate) struct Solo {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    line: Option<Arc<Line>>,
    is_taken: bool,
    /// Calls are narrowed for it.
    is_used: bool,
    /// A second attempt has waited.
    is_over: bool,
}

impl Solo {
    /// Whether an attempt may begin on it: the line is open, and nobody waits.
    pub(crate) fn is_ready(&self) -> bool {
        let state = locked(&self.state);
        !state.is_taken && !state.is_over && state.line.as_ref().is_some_and(|line| line.is_open())
    }

    /// Whether the caller waits alone. If so, the line is its own until it leaves.
    pub(crate) fn enter(&self, engine: &Arc<Engine>) -> bool {
        let mut state = locked(&self.state);
        if state.is_taken || state.is_over {
            return false;
        }
        if !state.is_used {
            let weak = Arc::downgrade(engine);
            let crowded = Box::new(move || {
                if let Some(engine) = weak.upgrade() {
                    engine.solo.end(&engine);
                }
            });
            if !engine.router.narrow(crowded) {
                return false;
            }
        }
        (state.is_taken, state.is_used) = (true, true);
        true
    }

    pub(crate) fn has_ended(&self) -> bool {
        locked(&self.state).is_over
    }

    /// Gives the line to the attempt that has entered.
    pub(crate) async fn take(&self, engine: &Engine, key: &[u8]) -> Result<Arc<Line>, Fault> {
        let kept = locked(&self.state).line.clone();
        if let Some(line) = kept.filter(|line| line.is_open()) {
            return Ok(line);
        }
        let made = engine.router.dial_alone(key, engine.timeout).await?;
        locked(&self.state).line = Some(Arc::clone(&made));
        if engine.closed.is_fired() {
            made.close_soon(); // close came before the line
        }
        Ok(made)
    }

    pub(crate) fn leave(&self, engine: &Engine) {
        let mut state = locked(&self.state);
        state.is_taken = false;
        let is_over = state.is_over;
        drop(state);
        if is_over {
            self.end(engine);
        }
    }

    /// Others wait or call. An attempt that blocks on the line does so to the end of its piece.
    pub(crate) fn end(&self, engine: &Engine) {
        let mut state = locked(&self.state);
        state.is_over = true;
        if state.is_taken {
            return;
        }
        let (line, was_used) = (state.line.take(), std::mem::take(&mut state.is_used));
        drop(state);
        if let Some(line) = line {
            line.close_soon();
        }
        if was_used {
            engine.router.widen();
        }
    }

    /// Ends the wait as well.
    pub(crate) fn close(&self) {
        let mut state = locked(&self.state);
        state.is_over = true;
        let line = state.line.clone();
        drop(state);
        if let Some(line) = line {
            line.close_soon();
        }
    }
}
