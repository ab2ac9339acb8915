//! Leader election: shared by the blocking and the async form.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Value};

use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::failures::{Failure, field, number, patient, text};
use crate::held::Watch;
use crate::hold::Hold;
use crate::request::Request;
use crate::sync::{Signal, first, locked};

/// The current leader.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leadership {
    /// The leader's fencing token.
    pub token: i64,
    /// The leader's label.
    pub owner: Option<String>,
}

/// One term of leadership.
#[derive(Debug, Clone)]
pub struct Term {
    watch: Watch,
    resigned: Arc<Signal>,
    stopped: Arc<Signal>,
}

impl Term {
    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.watch.token()
    }

    /// Whether the term has ended: the leadership was lost, or the leader resigned or was stopped.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.resigned.is_fired() || self.stopped.is_fired() || self.watch.check().is_err()
    }

    /// Fails unless this process is certain to be the leader.
    ///
    /// # Errors
    /// [`Lost`](Kind::Lost).
    pub fn check(&self) -> Result<(), Error> {
        self.watch.check()
    }

    /// Waits until the term has ended. This works in any async runtime.
    pub async fn over(&self) {
        first(self.watch.over(), first(self.resigned.wait(), self.stopped.wait())).await;
    }
}

/// The part of a campaign's state that its owner changes.
#[derive(Debug, Default)]
pub(crate) struct Campaign {
    stopped: Arc<Signal>,
    term: Mutex<Option<Term>>,
}

impl Campaign {
    pub(crate) fn stop(&self) {
        self.stopped.fire();
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn stopped(&self) -> Arc<Signal> {
        Arc::clone(&self.stopped)
    }

    pub(crate) fn resign(&self) {
        if let Some(term) = locked(&self.term).as_ref() {
            term.resigned.fire();
        }
    }

    pub(crate) fn token(&self) -> Option<i64> {
        locked(&self.term).as_ref().filter(|term| !term.is_over()).map(Term::token)
    }

    /// Campaigns until elected; `None` if it was stopped.
    pub(crate) async fn elected(
        &self,
        engine: &Arc<Engine>,
        request: &Arc<Request>,
    ) -> Result<Option<Arc<Hold>>, Error> {
        let mut known = String::new();
        while !self.stopped.is_fired() {
            let error = match engine.acquire(Arc::clone(request), Arc::clone(&self.stopped)).await {
                Ok(hold) => return Ok(Some(hold)),
                Err(error) => error,
            };
            match error.kind() {
                Kind::Argument | Kind::Misuse => return Err(error),
                Kind::Timeout | Kind::Cancelled => {}
                _ => {
                    if error.to_string() != known {
                        known = error.to_string();
                        log::warn!("serverlock: campaigning failed; trying again: {error}");
                    }
                    self.pause(&engine.resources.reach.clock, request).await;
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn begin(&self, hold: &Arc<Hold>) -> Term {
        let term = Term { watch: Watch::new(hold), resigned: Arc::default(), stopped: Arc::clone(&self.stopped) };
        *locked(&self.term) = Some(term.clone());
        term
    }

    pub(crate) fn end(&self) {
        *locked(&self.term) = None;
    }

    /// Gives others a turn.
    pub(crate) async fn pause(&self, clock: &Clock, request: &Request) {
        let span = Duration::from_secs(1).min(request.lease / 3);
        clock.timeout(span, self.stopped.wait()).await;
    }
}

/// Asks the server for the leader, three times per lease.
pub(crate) struct Looks {
    engine: Arc<Engine>,
    request: Arc<Request>,
    /// The token that was yielded last; 0 if nobody led.
    before: Option<i64>,
}

impl Looks {
    pub(crate) fn new(engine: &Arc<Engine>, request: &Arc<Request>) -> Self {
        Self { engine: Arc::clone(engine), request: Arc::clone(request), before: None }
    }

    /// The next change; `None` once the manager is closed. Without a reply the leader is unknown.
    pub(crate) async fn next(&mut self) -> Option<Option<Leadership>> {
        let pause = (self.request.lease / 3).max(Duration::from_millis(1));
        let mut is_first = self.before.is_none();
        loop {
            if !std::mem::take(&mut is_first) {
                let reach = &self.engine.resources.reach;
                reach.clock.timeout(pause, reach.closed.wait()).await;
            }
            if self.engine.resources.reach.closed.is_fired() {
                return None;
            }
            let Some(leader) = self.look().await else { continue };
            let token = leader.as_ref().map_or(0, |leader| leader.token);
            if self.before != Some(token) {
                self.before = Some(token);
                return Some(leader);
            }
        }
    }

    async fn look(&self) -> Option<Option<Leadership>> {
        let mut cmd = Cmd::new();
        cmd.arg("LOCK.INFO").arg(self.request.key());
        let reach = &self.engine.resources.reach;
        let call = reach.router.call(self.request.key(), cmd, reach.timeout);
        match patient(&reach.clock, call, reach.clock.now().saturating_add(reach.timeout)).await {
            Ok(info) => Some(leader(&info)),
            Err(Failure::Reply(_)) => Some(None),
            Err(_) => None,
        }
    }
}

/// Reads LOCK.INFO.
fn leader(info: &Value) -> Option<Leadership> {
    let token = number(field(info, "token")?)?;
    let is_held = text(field(info, "state")?) == "held" && token > 0;
    let owner = field(info, "owner").map(text).filter(|owner| !owner.is_empty());
    is_held.then_some(Leadership { token, owner })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_read_in_both_protocols() {
        let text = |text: &str| Value::BulkString(text.into());
        let fields =
            |state| vec![(text("state"), text(state)), (text("token"), Value::Int(7)), (text("owner"), text("alice"))];
        let expected = Some(Leadership { token: 7, owner: Some("alice".into()) });
        assert_eq!(leader(&Value::Map(fields("held"))), expected);
        let flat = fields("held").into_iter().flat_map(|(name, value)| [name, value]).collect();
        assert_eq!(leader(&Value::Array(flat)), expected);
        assert_eq!(leader(&Value::Map(fields("expired"))), None);
        assert_eq!(leader(&Value::Nil), None);
    }
}
