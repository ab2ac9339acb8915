//! Time that stands still until a test moves it.
//!
//! Work that is in progress is counted: each followed future from the moment that it is woken until it waits again. So
//! the next thing in time happens only after everything that was caused before has settled.

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::memory::BEGINS;
use crate::clock::Time;
use crate::sync::locked;

pub(super) struct Moved {
    pub(super) state: Mutex<State>,
    pub(super) idle: Condvar,
}

pub(super) struct State {
    now: Duration,
    /// By time, and by number.
    timers: BTreeMap<(Duration, u64), Waker>,
    count: u64,
    /// How much work is in progress.
    pub(super) busy: usize,
    /// So much of it is no longer waited for.
    pub(super) ignored: usize,
    /// Counts the beginnings and ends of work.
    pub(super) changes: u64,
    /// Whether a caller's call has returned, so that the application goes on.
    pub(super) has_returned: bool,
}

impl State {
    pub(super) fn is_idle(&self) -> bool {
        self.busy <= self.ignored
    }
}

impl Moved {
    pub(super) fn new() -> Self {
        let state = State {
            now: BEGINS,
            timers: BTreeMap::new(),
            count: 0,
            busy: 0,
            ignored: 0,
            changes: 0,
            has_returned: false,
        };
        Self { state: Mutex::new(state), idle: Condvar::new() }
    }

    /// When the first timer is due.
    pub(super) fn due(&self) -> Option<Duration> {
        locked(&self.state).timers.keys().next().map(|(at, _)| *at)
    }

    /// Moves to that time, and never backwards.
    pub(super) fn set(&self, now: Duration) {
        let mut state = locked(&self.state);
        state.now = state.now.max(now);
    }

    /// Moves to the first timer that is due by then, and ends its wait.
    pub(super) fn fire(&self, end: Duration) {
        let mut state = locked(&self.state);
        let first = state.timers.first_entry().filter(|it| it.key().0 <= end);
        let Some(((at, _), waker)) = first.map(OccupiedEntry::remove_entry) else { return };
        state.now = state.now.max(at);
        drop(state);
        waker.wake();
    }
}

impl Time for Moved {
    fn now(&self) -> Duration {
        locked(&self.state).now
    }

    fn sleep(self: Arc<Self>, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let at = self.now().saturating_add(span);
        Box::pin(Sleep { moved: self, at, number: None })
    }

    fn begin(&self) {
        let mut state = locked(&self.state);
        state.busy = state.busy.saturating_add(1);
        state.changes = state.changes.wrapping_add(1);
    }

    fn end(&self) {
        let mut state = locked(&self.state);
        state.busy = state.busy.saturating_sub(1);
        state.ignored = state.ignored.min(state.busy);
        state.changes = state.changes.wrapping_add(1);
        if state.is_idle() {
            self.idle.notify_all();
        }
    }

    fn returned(&self) {
        locked(&self.state).has_returned = true;
    }
}

struct Sleep {
    moved: Arc<Moved>,
    at: Duration,
    /// Its number among the timers.
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let moved = Arc::clone(&self.moved);
        let mut state = locked(&moved.state);
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let number = self.number.unwrap_or_else(|| {
            state.count = state.count.wrapping_add(1);
            state.count
        });
        self.number = Some(number);
        let before = state.timers.insert((self.at, number), context.waker().clone());
        drop(state);
        drop(before); // outside the mutex: dropping a waker may end a task, and its timers
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let before = locked(&self.moved.state).timers.remove(&(self.at, number));
            drop(before);
        }
    }
}
