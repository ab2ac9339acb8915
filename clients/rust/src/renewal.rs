//! One timer for all of a manager's holds. It has no task while nothing is due.

use std::cmp::Ordering as Order;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::command::Command;
use crate::failures::Failure;
use crate::hold::Hold;
use crate::sync::locked;

const SWEEPS_AFTER: usize = 1000;

pub(crate) struct Timer {
    clock: Clock,
    state: Mutex<State>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    entries: BinaryHeap<Entry>,
    count: u64,
    dead: usize,
    is_running: bool,
    is_closed: bool,
    wakes_at: Duration,
}

/// A hold to check.
struct Entry {
    at: Duration,
    number: u64,
    hold: Arc<Hold>,
}

impl Entry {
    fn is_newest(&self) -> bool {
        self.number == self.hold.entry.load(Ordering::SeqCst)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed, because the heap yields its largest entry first.
    fn cmp(&self, other: &Self) -> Order {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl Timer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default(), changed: Arc::default() }
    }

    /// Renews the hold when a third of its lease has passed.
    pub(crate) fn add(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.check_at(hold, hold.renew_at());
    }

    /// Checks a hold at that time. Only its newest entry counts.
    pub(crate) fn check_at(self: &Arc<Self>, hold: &Arc<Hold>, at: Duration) {
        let mut state = locked(&self.state);
        state.count = state.count.wrapping_add(1);
        let number = state.count;
        hold.entry.store(number, Ordering::SeqCst);
        state.entries.push(Entry { at, number, hold: Arc::clone(hold) });
        if !state.is_running {
            state.is_running = true;
            state.wakes_at = at;
            hold.resources.reach.spawn(run(Arc::downgrade(self), Arc::clone(&self.changed)));
        } else if at < state.wakes_at {
            state.wakes_at = at;
            self.changed.notify_one();
        }
    }

    /// Call this when a hold has ended before its entry was due. Old entries are swept once they are the majority.
    pub(crate) fn forget(&self) {
        let mut state = locked(&self.state);
        state.dead = state.dead.saturating_add(1);
        let is_full = state.dead > SWEEPS_AFTER && state.dead.saturating_mul(2) > state.entries.len();
        if is_full || state.is_closed {
            state.dead = 0;
            let (live, over) =
                state.entries.drain().partition(|entry: &Entry| entry.is_newest() && !entry.hold.is_over());
            state.entries = live;
            let is_empty = state.entries.is_empty();
            drop(state);
            drop(over); // outside the mutex: the last hold may drop its manager
            if is_empty {
                self.changed.notify_one();
            }
        }
    }

    /// Stops renewing holds; their loss is still reported.
    pub(crate) fn close(&self) {
        locked(&self.state).is_closed = true;
        self.forget();
    }

    /// The entries that are due, and when to check again; `None` if none is left.
    fn due(&self) -> (Vec<Entry>, Option<Duration>) {
        let mut state = locked(&self.state);
        let mut due = Vec::new();
        while state.entries.peek().is_some_and(|entry| entry.at <= self.clock.now()) {
            due.extend(state.entries.pop());
        }
        if !due.is_empty() {
            return (due, Some(self.clock.now()));
        }
        let next = state.entries.peek().map(|entry| entry.at);
        state.is_running = next.is_some();
        state.wakes_at = next.unwrap_or(Duration::MAX);
        (due, next)
    }
}

async fn run(timer: Weak<Timer>, changed: Arc<Notify>) {
    while let Some(timer) = timer.upgrade() {
        let (due, next) = timer.due();
        for entry in due.into_iter().filter(Entry::is_newest) {
            let Some(due) = entry.hold.due() else { continue };
            // This comes first, so that the outcome of the renewal overrides it.
            timer.check_at(&entry.hold, due.lost_at);
            if due.renews {
                let timer = Arc::clone(&timer);
                entry.hold.resources.reach.clone().spawn(renew(timer, entry.hold));
            }
        }
        let clock = timer.clock.clone();
        drop(timer);
        let Some(next) = next else { return };
        clock.until(next, changed.notified()).await;
    }
}

async fn renew(timer: Arc<Timer>, hold: Arc<Hold>) {
    let reach = hold.resources.reach.clone();
    let (sent, lost_at, lease) = (hold.now(), hold.lost_at(), hold.request.lease);
    let timeout = reach.timeout.min(lost_at.saturating_sub(sent) / 2).max(Duration::from_millis(50));
    let Some(extending) = hold.extending(sent, lease) else { return };
    let mut sending = hold.sending(Command::Extend { token: hold.token, lease });
    let mut call = reach.router.call(sending.key(), sending.cmd(), timeout);
    let reply = loop {
        match call.await {
            Err(Failure::Late(late)) if hold.now() < lost_at => {
                log::warn!("serverlock: the renewal of the lock {} has no reply yet", hold.request.name);
                if reach.router.passes_late_replies() {
                    break Err(Failure::Late(late)); // the next copy takes another route
                }
                call = late;
            }
            reply => match sending.read(reply) {
                Some(reply) => break reply,
                None => call = reach.router.call(sending.key(), sending.cmd(), timeout),
            },
        }
    };
    hold.renewed();
    if hold.is_over() {
        if let Err(Failure::Late(late)) = reply {
            extending.await_late(late); // it could shorten the lease of a tick that is kept
        }
        return;
    }
    match reply {
        Ok(Value::Int(1)) => {
            extending.done();
            timer.add(&hold);
        }
        Ok(_) => hold.lose("somebody else has taken it", true),
        Err(failure) => {
            hold.missed(&failure);
            let name = &hold.request.name;
            log::warn!("serverlock: renewing the lock {name} failed; trying again: {}", failure.text());
            let again = hold.now().saturating_add((lease / 20).max(Duration::from_millis(10)));
            timer.check_at(&hold, again.min(hold.lost_at()));
            if let Failure::Late(late) = failure {
                extending.await_late(late);
            }
        }
    }
}
