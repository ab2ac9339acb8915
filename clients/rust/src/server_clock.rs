//! The server's clock, and the margin that the server adds to leases: each is requested at most once a minute. One
//! caller asks at a time, while others wait for its answer.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::MutexGuard;

use crate::clock::now;
use crate::failures::{Failure, ReplyError, field, number, text};
use crate::reach::Reach;
use crate::sync::locked;

/// How long a reply stays valid.
const COUNTS: Duration = Duration::from_secs(60);
/// An estimate that may be off by more than this is used, but not kept.
pub(crate) const MOST_DOUBT: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_millis(10);
/// The margin of the script, and of a server that does not say.
pub(crate) const USUAL_MARGIN: Duration = Duration::from_secs(1);

/// What the server's clock showed at a moment of the local clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Estimate {
    /// The time since the beginning of 1970.
    server: Duration,
    local: Duration,
    /// By how much it may be wrong.
    pub(crate) doubt: Duration,
    /// The local time of the reply.
    pub(crate) asked: Duration,
}

impl Estimate {
    /// From a reply to TIME: the server read its clock at some moment between `sent` and `received`.
    fn read(reply: &Value, sent: Duration, received: Duration) -> Result<Self, Failure> {
        let unexpected = || {
            let text = format!("ERR unexpected reply {reply:?} to TIME");
            Failure::Reply(ReplyError { code: "ERR".into(), text })
        };
        let Value::Array(words) = reply else { return Err(unexpected()) };
        let [seconds, micros] = words.as_slice() else { return Err(unexpected()) };
        let (Ok(seconds), Ok(micros)) = (text(seconds).parse(), text(micros).parse()) else { return Err(unexpected()) };
        let server = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
        let doubt = received.saturating_sub(sent) / 2;
        Ok(Self { server, local: sent.saturating_add(doubt), doubt, asked: received })
    }

    /// Whether it is accurate enough to be kept.
    pub(crate) fn is_good(&self) -> bool {
        self.doubt <= MOST_DOUBT
    }

    fn is_fresh(&self) -> bool {
        now() < self.asked.saturating_add(COUNTS)
    }

    /// What the server's clock shows at a moment of the local clock.
    pub(crate) fn server_at(&self, local: Duration) -> Duration {
        self.server.saturating_add(local).saturating_sub(self.local)
    }

    /// The reverse; 0 if that was before the local clock began.
    pub(crate) fn local_at(&self, server: Duration) -> Duration {
        self.local.saturating_add(server).saturating_sub(self.server)
    }
}

pub(crate) struct ServerClock {
    reach: Reach,
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    /// By key in a cluster, because each of its servers has its own clock.
    known: HashMap<Vec<u8>, Estimate>,
    margin: Duration,
    margin_asked: Option<Duration>,
}

impl ServerClock {
    pub(crate) fn new(reach: Reach) -> Self {
        let state = State { known: HashMap::new(), margin: USUAL_MARGIN, margin_asked: None };
        Self { reach, turn: tokio::sync::Mutex::default(), state: Mutex::new(state) }
    }

    /// Estimates the clock of the key's server.
    pub(crate) async fn read(&self, key: &[u8]) -> Result<Estimate, Failure> {
        let place = if self.reach.router.is_cluster() { key } else { &[] };
        if let Some(found) = self.fresh(place) {
            return Ok(found);
        }
        let _turn = self.turn().await?;
        if let Some(found) = self.fresh(place) {
            return Ok(found); // another caller has just asked
        }
        let made = self.ask(key).await?;
        if made.is_good() {
            let known = &mut locked(&self.state).known;
            known.retain(|_, old| old.is_fresh());
            known.insert(place.to_vec(), made);
        }
        Ok(made)
    }

    fn fresh(&self, place: &[u8]) -> Option<Estimate> {
        locked(&self.state).known.get(place).copied().filter(Estimate::is_fresh)
    }

    async fn turn(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let turn = tokio::time::timeout(self.reach.timeout, self.turn.lock()).await;
        turn.map_err(|_| Failure::broken("another caller has asked the server, and is waiting for the reply"))
    }

    /// Asks twice if the reply is lost or slow.
    async fn ask(&self, key: &[u8]) -> Result<Estimate, Failure> {
        match self.call(key).await {
            Ok(made) if made.is_good() => Ok(made),
            // It may have had to wait for a new connection.
            Ok(made) => match self.call(key).await {
                Ok(again) if again.doubt < made.doubt => Ok(again),
                _ => Ok(made),
            },
            Err(failure) if failure.may_pass() => {
                if failure.is_connection_lost() {
                    let _ = self.reach.router.refresh(self.reach.timeout).await; // the key may have moved
                }
                tokio::time::sleep(PAUSE).await;
                self.call(key).await
            }
            Err(failure) => Err(failure),
        }
    }

    async fn call(&self, key: &[u8]) -> Result<Estimate, Failure> {
        let mut cmd = Cmd::new();
        cmd.arg("TIME");
        let sent = now();
        let reply = self.reach.router.call(key, cmd, self.reach.timeout).await?;
        Estimate::read(&reply, sent, now())
    }

    /// The margin, as currently known.
    pub(crate) fn margin(&self) -> Duration {
        locked(&self.state).margin
    }

    fn knows_margin(&self) -> bool {
        locked(&self.state).margin_asked.is_some_and(|asked| now() < asked.saturating_add(COUNTS))
    }

    /// What the server adds to each lease.
    pub(crate) async fn read_margin(&self, key: &[u8]) -> Duration {
        if !self.knows_margin()
            && let Ok(_turn) = self.turn().await
            && !self.knows_margin()
        {
            self.ask_margin(key).await;
        }
        self.margin()
    }

    /// After an error reply, the last margin counts: this user may not ask.
    async fn ask_margin(&self, key: &[u8]) {
        let mut cmd = Cmd::new();
        cmd.arg("LOCK.INFO").arg(key);
        let reply = self.reach.router.call(key, cmd, self.reach.timeout).await;
        let mut state = locked(&self.state);
        match reply {
            Ok(info) => state.margin = margin_of(&info),
            Err(Failure::Reply(_)) => {}
            Err(_) => return,
        }
        state.margin_asked = Some(now());
    }
}

/// Reads LOCK.INFO.
fn margin_of(info: &Value) -> Duration {
    let ms = |name| field(info, name).and_then(number).and_then(|ms| u64::try_from(ms).ok());
    match (ms("lease-ms"), ms("free-in-ms")) {
        (Some(lease), Some(free)) if lease > 0 => {
            // Both are whole milliseconds, one rounded down and the other up.
            Duration::from_millis(free.saturating_sub(lease).saturating_sub(1))
        }
        _ => USUAL_MARGIN,
    }
}
