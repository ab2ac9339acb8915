//! One timer for all holds of a manager. It has no task while nothing is due.

use std::cmp::Ordering as Order;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;

use crate::clock::now;
use crate::engine::Engine;
use crate::hold::Hold;
use crate::judge::{Call, Fault, Reply};
use crate::sync::locked;

const SWEEPS_AFTER: usize = 1000;
/// Timers stand still while the machine is suspended, so this one looks at the clock again after that time.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
const DEBT_PAUSE: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct Timer {
    state: Mutex<State>,
    stir: Arc<Notify>,
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

/// A hold to look at.
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
    /// The heap has its largest first.
    fn cmp(&self, other: &Self) -> Order {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl Timer {
    /// Renews it when a third of its lease has passed.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        self.look_at(hold, hold.renew_at());
    }

    /// Looks at a hold at that time. Only its newest entry counts.
    pub(crate) fn look_at(&self, hold: &Arc<Hold>, at: Duration) {
        let mut state = locked(&self.state);
        state.count = state.count.wrapping_add(1);
        let number = state.count;
        hold.entry.store(number, Ordering::SeqCst);
        state.entries.push(Entry { at, number, hold: Arc::clone(hold) });
        if !state.is_running {
            state.is_running = true;
            state.wakes_at = at;
            let (engine, stir) = (Arc::downgrade(&hold.engine), Arc::clone(&self.stir));
            hold.engine.spawn(run(engine, stir));
        } else if at < state.wakes_at {
            state.wakes_at = at;
            self.stir.notify_one();
        }
    }

    /// A hold has ended before its entry was due. Old entries are swept when they are most of them.
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
            drop(over); // outside of the lock: the last hold may take the engine along
            if is_empty {
                self.stir.notify_one();
            }
        }
    }

    /// Holds are not renewed any more; that they are lost then is still told.
    pub(crate) fn close(&self) {
        locked(&self.state).is_closed = true;
        self.forget();
    }

    /// What is due, and when to look again; never, if nothing is left.
    fn due(&self) -> (Vec<Entry>, Option<Duration>) {
        let mut state = locked(&self.state);
        let mut due = Vec::new();
        while state.entries.peek().is_some_and(|entry| entry.at <= now()) {
            due.extend(state.entries.pop());
        }
        if !due.is_empty() {
            return (due, Some(now()));
        }
        let next = state.entries.peek().map(|entry| entry.at);
        state.is_running = next.is_some();
        state.wakes_at = next.unwrap_or(Duration::MAX);
        (due, next)
    }
}

async fn run(engine: Weak<Engine>, stir: Arc<Notify>) {
    while let Some(engine) = engine.upgrade() {
        let (due, next) = engine.timer.due();
        for entry in due.into_iter().filter(Entry::is_newest) {
            let Some(due) = entry.hold.due() else { continue };
            // First: what becomes of the renewal has the last word.
            engine.timer.look_at(&entry.hold, due.lost_at);
            if due.renews {
                engine.spawn(renew(entry.hold));
            }
        }
        drop(engine);
        let Some(next) = next else { return };
        let _ = tokio::time::timeout(next.saturating_sub(now()).min(LONGEST_SLEEP), stir.notified()).await;
    }
}

async fn renew(hold: Arc<Hold>) {
    let engine = Arc::clone(&hold.engine);
    let (sent, lost_at, lease) = (now(), hold.lost_at(), hold.request.lease);
    let timeout = engine.timeout.min(lost_at.saturating_sub(sent) / 2).max(Duration::from_millis(50));
    let extending = hold.extending(sent, lease);
    let cmd = engine.extend_words(&hold, lease);
    let mut call = engine.router.call(hold.request.key(), cmd, timeout);
    let reply = loop {
        match call.await {
            Err(Fault::Late(late)) if now() < lost_at => {
                log::warn!("serverlock: the renewal of the lock {} has no reply yet", hold.request.name);
                call = late;
            }
            reply => break reply,
        }
    };
    hold.renewed();
    if hold.is_over() {
        return;
    }
    match reply {
        Ok(Value::Int(1)) => {
            extending.done();
            engine.timer.add(&hold);
        }
        Ok(_) => hold.lose("somebody has taken it away", true),
        Err(fault) => {
            engine.missed(&hold, &fault);
            let name = &hold.request.name;
            log::warn!("serverlock: renewing the lock {name} failed, and is tried again: {}", fault.text());
            let again = now().saturating_add((lease / 20).max(Duration::from_millis(10)));
            engine.timer.look_at(&hold, again.min(hold.lost_at()));
        }
    }
}

/// The reply, or the call itself if there is none in time.
pub(crate) fn in_time(mut call: Call, timeout: Duration) -> Call {
    Box::pin(async move {
        match tokio::time::timeout(timeout, &mut call).await {
            Ok(reply) => reply,
            Err(_) => Err(Fault::Late(in_time(call, timeout))),
        }
    })
}

/// Awaits a reply, also one that is late, until then.
pub(crate) async fn patient(mut call: Call, until: Duration) -> Reply {
    loop {
        match call.await {
            Err(Fault::Late(late)) if now() < until => call = late,
            reply => return reply,
        }
    }
}

impl Engine {
    /// Tries to give something back in the background until it works, or that time has come.
    pub(crate) fn owe<F>(self: &Arc<Self>, until: Duration, debt: impl Fn(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), Fault>> + Send,
    {
        let engine = Arc::clone(self);
        self.spawn(async move {
            while let Err(fault) = debt(Arc::clone(&engine)).await {
                if engine.closed.is_fired() || now() >= until || fault.is_final() {
                    return;
                }
                tokio::time::sleep(DEBT_PAUSE).await;
            }
        });
    }
}
