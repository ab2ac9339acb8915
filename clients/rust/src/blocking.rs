//! The connection on which a manager's only wait blocks. That takes one round trip, where NOTIFY takes two and a
//! message.
//!
//! It is for processes that do one thing at a time. Once a second attempt waits at the same time, all attempts wait
//! with NOTIFY. While the connection is open, calls keep to one connection, so that there are never more than three in
//! all. Many simultaneous calls also close it.

use std::sync::{Arc, Mutex};

use crate::connection::Connection;
use crate::failures::Failure;
use crate::reach::Reach;
use crate::sync::locked;

pub(crate) struct Blocking {
    reach: Reach,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    is_taken: bool,
    /// While this is set, calls keep to one connection.
    is_used: bool,
    /// A second attempt has waited.
    is_over: bool,
}

impl Blocking {
    pub(crate) fn new(reach: Reach) -> Self {
        Self { reach, state: Mutex::default() }
    }

    /// Whether an attempt may begin here: the connection is open, and no attempt waits on it.
    pub(crate) fn is_ready(&self) -> bool {
        let state = locked(&self.state);
        !state.is_taken && !state.is_over && state.connection.as_ref().is_some_and(|connection| connection.is_open())
    }

    /// Whether the caller waits alone. If so, the connection belongs to the caller until it leaves.
    pub(crate) fn enter(self: &Arc<Self>) -> bool {
        let mut state = locked(&self.state);
        if state.is_taken || state.is_over {
            return false;
        }
        if !state.is_used {
            let weak = Arc::downgrade(self);
            let crowded = Box::new(move || {
                if let Some(blocking) = weak.upgrade() {
                    blocking.end();
                }
            });
            if !self.reach.router.narrow(crowded) {
                return false;
            }
        }
        (state.is_taken, state.is_used) = (true, true);
        true
    }

    pub(crate) fn has_ended(&self) -> bool {
        locked(&self.state).is_over
    }

    /// Returns the connection, for the attempt that has entered.
    pub(crate) async fn take(&self, key: &[u8]) -> Result<Arc<Connection>, Failure> {
        let kept = locked(&self.state).connection.clone();
        if let Some(connection) = kept.filter(|connection| connection.is_open()) {
            return Ok(connection);
        }
        let opened = self.reach.router.dial_alone(key, self.reach.timeout).await?;
        locked(&self.state).connection = Some(Arc::clone(&opened));
        if self.reach.closed.is_fired() {
            opened.close_soon(); // the manager has been closed
        }
        Ok(opened)
    }

    pub(crate) fn leave(&self) {
        let mut state = locked(&self.state);
        state.is_taken = false;
        let is_over = state.is_over;
        drop(state);
        if is_over {
            self.end();
        }
    }

    /// Closes the connection because others wait or call. An attempt that blocks on it keeps it until its piece ends.
    pub(crate) fn end(&self) {
        let mut state = locked(&self.state);
        state.is_over = true;
        if state.is_taken {
            return;
        }
        let (connection, was_used) = (state.connection.take(), std::mem::take(&mut state.is_used));
        drop(state);
        if let Some(connection) = connection {
            connection.close_soon();
        }
        if was_used {
            self.reach.router.widen();
        }
    }

    /// Closes the connection, which also ends the wait.
    pub(crate) fn close(&self) {
        let mut state = locked(&self.state);
        state.is_over = true;
        let connection = state.connection.clone();
        drop(state);
        if let Some(connection) = connection {
            connection.close_soon();
        }
    }
}
