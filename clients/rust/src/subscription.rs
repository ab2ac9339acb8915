//! How attempts wait with NOTIFY: one connection that is subscribed to this manager's channel. Messages are hints: an
//! attempt asks the server again after a message, and when the connection is lost or restored.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Cmd;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::failures::Failure;
use crate::random::{part_of, random};
use crate::reach::Reach;
use crate::sync::{Signal, first, locked};

const PING_EVERY: Duration = Duration::from_secs(3);
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
const MOST_MESSAGES: usize = 16;

pub(crate) struct Subscription {
    reach: Reach,
    channel: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    by_id: HashMap<u64, Arc<Updates>>,
    connection: Option<Arc<Connection>>,
    is_running: bool,
    is_up: bool,
    is_refused: bool,
}

/// The messages for one attempt.
pub(crate) struct Updates {
    state: Mutex<Pending>,
    changed: Notify,
}

struct Pending {
    kinds: VecDeque<String>,
    /// When to ask again after the connection was restored.
    again: Duration,
}

impl Subscription {
    pub(crate) fn new(reach: Reach) -> Self {
        Self { reach, channel: format!("serverlock:{:016x}", random()), state: Arc::default() }
    }

    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// The first attempt opens the connection.
    pub(crate) fn register(self: &Arc<Self>, id: u64, key: &[u8]) -> Arc<Updates> {
        let pending = Pending { kinds: VecDeque::new(), again: Duration::MAX };
        let updates = Arc::new(Updates { state: Mutex::new(pending), changed: Notify::new() });
        let mut state = locked(&self.state);
        state.by_id.insert(id, Arc::clone(&updates));
        if !std::mem::replace(&mut state.is_running, true) {
            self.reach.spawn(listen(Arc::clone(self), key.to_vec()));
        }
        updates
    }

    pub(crate) fn unregister(&self, id: u64) {
        locked(&self.state).by_id.remove(&id);
    }

    /// How many attempts wait for messages.
    pub(crate) fn count(&self) -> usize {
        locked(&self.state).by_id.len()
    }

    pub(crate) fn is_up(&self) -> bool {
        locked(&self.state).is_up
    }

    pub(crate) fn is_refused(&self) -> bool {
        locked(&self.state).is_refused
    }

    /// Waits until the connection is subscribed, or cannot be.
    pub(crate) async fn ready(&self, updates: &Updates, timeout: Duration, cancel: &Signal, closed: &Signal) {
        let clock = &self.reach.clock;
        let end = clock.now().saturating_add(timeout);
        loop {
            let (is_up, is_refused) = {
                let state = locked(&self.state);
                (state.is_up, state.is_refused)
            };
            let left = end.saturating_sub(clock.now());
            if is_up || is_refused || left.is_zero() || cancel.is_fired() || closed.is_fired() {
                return;
            }
            updates.next(clock, left, cancel, closed).await;
        }
    }

    pub(crate) fn close(&self) {
        let connection = locked(&self.state).connection.clone();
        if let Some(connection) = connection {
            connection.close_soon();
        }
    }

    /// Makes all attempts ask again, spread over a second.
    pub(crate) fn send_again(&self) {
        let state = locked(&self.state);
        let spread = if state.by_id.len() > 1 { Duration::from_secs(1) } else { Duration::ZERO };
        for updates in state.by_id.values() {
            let at = self.reach.clock.now().saturating_add(part_of(spread));
            let mut pending = locked(&updates.state);
            pending.again = pending.again.min(at);
            drop(pending);
            updates.changed.notify_one();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = locked(&self.state);
        change(&mut state);
        for updates in state.by_id.values() {
            updates.changed.notify_one();
        }
    }
}

async fn listen(subscription: Arc<Subscription>, key: Vec<u8>) {
    let reach = &subscription.reach;
    let mut span = SHORTEST;
    while !reach.closed.is_fired() {
        match subscribed(&subscription, &key).await {
            Ok(connection) => {
                span = SHORTEST;
                watch(reach, &connection).await;
                if !reach.closed.is_fired() {
                    log::warn!("serverlock: the connection for waiting was lost; opening a new one");
                }
            }
            Err(failure) if !failure.is_connection_lost() && !failure.is_transient() => {
                subscription.change(|state| (state.is_refused, state.is_running) = (true, false));
                return;
            }
            Err(_) => _ = reach.router.refresh(reach.timeout).await,
        }
        subscription.change(|state| (state.is_up, state.connection) = (false, None));
        reach.clock.timeout(span, reach.closed.wait()).await;
        span = span.saturating_mul(2).min(LONGEST);
    }
}

async fn subscribed(subscription: &Subscription, key: &[u8]) -> Result<Arc<Connection>, Failure> {
    let reach = &subscription.reach;
    let connection = reach.dial(key).await?;
    locked(&subscription.state).connection = Some(Arc::clone(&connection));
    if reach.closed.is_fired() {
        connection.close_soon(); // the manager was closed before the connection was open
    }
    let state = Arc::clone(&subscription.state);
    let pending = move |message: &str| pass(&locked(&state), message);
    if let Err(failure) = connection.subscribe(&subscription.channel, reach.timeout, pending).await {
        connection.close().await;
        return Err(failure);
    }
    locked(&subscription.state).is_up = true;
    subscription.send_again();
    Ok(connection)
}

/// Returns once the connection has ended. A PING without a reply also ends it.
async fn watch(reach: &Reach, connection: &Connection) {
    let never = Signal::default();
    while reach.clock.timeout(PING_EVERY, connection.ended()).await.is_none() {
        let mut ping = Cmd::new();
        ping.arg("PING");
        if connection.call(&ping, reach.timeout, &never).await.is_err() {
            connection.close().await;
            return;
        }
    }
}

/// Reads "granted <id> <key>".
fn pass(state: &State, message: &str) {
    let mut words = message.splitn(3, ' ');
    let (Some(kind), Some(id)) = (words.next(), words.next().and_then(|id| id.parse().ok())) else { return };
    let Some(updates) = state.by_id.get::<u64>(&id) else { return };
    let mut pending = locked(&updates.state);
    if pending.kinds.len() < MOST_MESSAGES {
        pending.kinds.push_back(kind.to_owned());
    }
    drop(pending);
    updates.changed.notify_one();
}

impl Updates {
    pub(crate) fn again_at(&self) -> Duration {
        locked(&self.state).again
    }

    /// Drops the messages that arrived before a command, because they do not apply to it.
    pub(crate) fn forget(&self) {
        let mut pending = locked(&self.state);
        pending.kinds.clear();
        pending.again = Duration::MAX;
    }

    /// The next message; empty after the time-out, or if the caller or the manager is done or the connection changes.
    pub(crate) async fn next(&self, clock: &Clock, timeout: Duration, cancel: &Signal, closed: &Signal) -> String {
        if let Some(kind) = self.take() {
            return kind;
        }
        let over = first(self.changed.notified(), first(cancel.wait(), closed.wait()));
        clock.timeout(timeout, over).await;
        self.take().unwrap_or_default()
    }

    fn take(&self) -> Option<String> {
        locked(&self.state).kinds.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Router, Servers};

    #[tokio::test]
    async fn a_message_reaches_only_the_attempt_that_it_names() {
        let servers = Servers::from(redis::Client::open("redis://localhost").unwrap());
        let router = Arc::new(Router::new(servers, Box::new(|_| unreachable!("nothing is sent"))));
        let (closed, clock, handle) = (Arc::default(), Clock::default(), tokio::runtime::Handle::current());
        let subscription = Subscription::new(Reach { router, timeout: Duration::ZERO, closed, clock, handle });
        let updates = |id| {
            let pending = Pending { kinds: VecDeque::new(), again: Duration::MAX };
            let updates = Arc::new(Updates { state: Mutex::new(pending), changed: Notify::new() });
            locked(&subscription.state).by_id.insert(id, Arc::clone(&updates));
            updates
        };
        let (one, two) = (updates(1), updates(2));
        for message in ["granted 2 a key with spaces", "granted", "", "granted x key", "granted 3 key"] {
            pass(&locked(&subscription.state), message);
        }
        assert_eq!((one.take(), two.take(), two.take()), (None, Some("granted".into()), None));
        assert!(subscription.channel().starts_with("serverlock:") && subscription.channel().len() == 27);
    }
}
