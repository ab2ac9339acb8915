//! How attempts wait by NOTIFY: one line that is subscribed to the channel of this manager, and who hears what. Messages
//! are hints: an attempt asks the server again when it hears something, and when the line is lost or comes back.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Cmd;
use tokio::sync::Notify;

use crate::clock::{now, part_of, random};
use crate::engine::Engine;
use crate::judge::Fault;
use crate::line::Line;
use crate::sync::{Signal, first, locked};

const PING_EVERY: Duration = Duration::from_secs(3);
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
const MOST_NEWS: usize = 16;

pub(crate) struct Subscription {
    channel: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    by_id: HashMap<u64, Arc<News>>,
    line: Option<Arc<Line>>,
    is_running: bool,
    is_up: bool,
    is_refused: bool,
}

/// What one attempt hears.
pub(crate) struct News {
    state: Mutex<Heard>,
    stir: Notify,
}

struct Heard {
    kinds: VecDeque<String>,
    /// When to ask again after the line came back.
    again: Duration,
}

impl Subscription {
    pub(crate) fn new() -> Self {
        Self { channel: format!("serverlock:{:016x}", random()), state: Arc::default() }
    }

    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// Opens the line when it is the first.
    pub(crate) fn register(&self, engine: &Arc<Engine>, id: u64, key: &[u8]) -> Arc<News> {
        let heard = Heard { kinds: VecDeque::new(), again: Duration::MAX };
        let news = Arc::new(News { state: Mutex::new(heard), stir: Notify::new() });
        let mut state = locked(&self.state);
        state.by_id.insert(id, Arc::clone(&news));
        if !std::mem::replace(&mut state.is_running, true) {
            engine.spawn(listen(Arc::clone(engine), key.to_vec()));
        }
        news
    }

    pub(crate) fn unregister(&self, id: u64) {
        locked(&self.state).by_id.remove(&id);
    }

    /// How many attempts hear messages.
    pub(crate) fn count(&self) -> usize {
        locked(&self.state).by_id.len()
    }

    pub(crate) fn is_up(&self) -> bool {
        locked(&self.state).is_up
    }

    /// Waits until the line is subscribed, or it is clear that it cannot be. Says whether it is refused.
    pub(crate) async fn ready(&self, news: &News, timeout: Duration, cancel: &Signal, closed: &Signal) -> bool {
        let end = now().saturating_add(timeout);
        loop {
            let (is_up, is_refused) = {
                let state = locked(&self.state);
                (state.is_up, state.is_refused)
            };
            let left = end.saturating_sub(now());
            if is_up || is_refused || left.is_zero() || cancel.is_fired() || closed.is_fired() {
                return is_refused;
            }
            news.next(left, cancel, closed).await;
        }
    }

    pub(crate) fn close(&self) {
        let line = locked(&self.state).line.clone();
        if let Some(line) = line {
            line.close_soon();
        }
    }

    /// Has all attempts sent again, within a second: not all at once.
    pub(crate) fn send_again(&self) {
        let state = locked(&self.state);
        let spread = if state.by_id.len() > 1 { Duration::from_secs(1) } else { Duration::ZERO };
        for news in state.by_id.values() {
            let at = now().saturating_add(part_of(spread));
            let mut heard = locked(&news.state);
            heard.again = heard.again.min(at);
            drop(heard);
            news.stir.notify_one();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = locked(&self.state);
        change(&mut state);
        for news in state.by_id.values() {
            news.stir.notify_one();
        }
    }
}

async fn listen(engine: Arc<Engine>, key: Vec<u8>) {
    let subscription = &engine.subscription;
    let mut span = SHORTEST;
    while !engine.closed.is_fired() {
        match subscribed(&engine, &key).await {
            Ok(line) => {
                span = SHORTEST;
                watch(&engine, &line).await;
                if !engine.closed.is_fired() {
                    log::warn!("serverlock: the connection for waiting was lost, and is opened again");
                }
            }
            Err(fault) if !fault.is_broken() && !fault.may_pass() => {
                subscription.change(|state| (state.is_refused, state.is_running) = (true, false));
                return;
            }
            Err(_) => _ = engine.router.refresh(engine.timeout).await,
        }
        subscription.change(|state| (state.is_up, state.line) = (false, None));
        let _ = tokio::time::timeout(span, engine.closed.wait()).await;
        span = span.saturating_mul(2).min(LONGEST);
    }
}

async fn subscribed(engine: &Arc<Engine>, key: &[u8]) -> Result<Arc<Line>, Fault> {
    let subscription = &engine.subscription;
    let line = engine.router.dial(key, engine.timeout).await?;
    locked(&subscription.state).line = Some(Arc::clone(&line));
    if engine.closed.is_fired() {
        line.close_soon(); // close came before the line
    }
    let state = Arc::clone(&subscription.state);
    let heard = move |message: &str| pass(&locked(&state), message);
    if let Err(fault) = line.subscribe(&subscription.channel, engine.timeout, heard).await {
        line.close().await;
        return Err(fault);
    }
    locked(&subscription.state).is_up = true;
    subscription.send_again();
    Ok(line)
}

/// Returns when the line has ended. A network that swallows everything is noticed by the silence.
async fn watch(engine: &Engine, line: &Line) {
    let never = Signal::default();
    while tokio::time::timeout(PING_EVERY, line.ended()).await.is_err() {
        let mut ping = Cmd::new();
        ping.arg("PING");
        if line.call(&ping, engine.timeout, &never).await.is_err() {
            line.close().await;
            return;
        }
    }
}

/// Reads "granted <id> <key>".
fn pass(state: &State, message: &str) {
    let mut words = message.splitn(3, ' ');
    let (Some(kind), Some(id)) = (words.next(), words.next().and_then(|id| id.parse().ok())) else { return };
    let Some(news) = state.by_id.get::<u64>(&id) else { return };
    let mut heard = locked(&news.state);
    if heard.kinds.len() < MOST_NEWS {
        heard.kinds.push_back(kind.to_owned());
    }
    drop(heard);
    news.stir.notify_one();
}

impl News {
    pub(crate) fn again_at(&self) -> Duration {
        locked(&self.state).again
    }

    /// What was heard before a new call says nothing about it.
    pub(crate) fn forget(&self) {
        let mut heard = locked(&self.state);
        heard.kinds.clear();
        heard.again = Duration::MAX;
    }

    /// The next message; nothing when the time is over, the caller or the manager is done, or the line has changed.
    pub(crate) async fn next(&self, timeout: Duration, cancel: &Signal, closed: &Signal) -> String {
        if let Some(kind) = self.heard() {
            return kind;
        }
        let over = first(self.stir.notified(), first(cancel.wait(), closed.wait()));
        let _ = tokio::time::timeout(timeout, over).await;
        self.heard().unwrap_or_default()
    }

    fn heard(&self) -> Option<String> {
        locked(&self.state).kinds.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_heard_by_the_attempt_that_it_names_and_by_no_other() {
        let subscription = Subscription::new();
        let news = |id| {
            let heard = Heard { kinds: VecDeque::new(), again: Duration::MAX };
            let news = Arc::new(News { state: Mutex::new(heard), stir: Notify::new() });
            locked(&subscription.state).by_id.insert(id, Arc::clone(&news));
            news
        };
        let (one, two) = (news(1), news(2));
        for message in ["granted 2 a key with spaces", "granted", "", "granted x key", "granted 3 key"] {
            pass(&locked(&subscription.state), message);
        }
        assert_eq!((one.heard(), two.heard(), two.heard()), (None, Some("granted".into()), None));
        assert!(subscription.channel().starts_with("serverlock:") && subscription.channel().len() == 27);
    }
}
