//! One copy of an attempt: whether it goes to the module or the script, its connection, and the meaning of its reply.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::attempt::{Asked, Attempt};
use crate::command::Command;
use crate::connection::Connection;
use crate::error::Kind;
use crate::failures::{Call, Failure, Reply, number, text};
use crate::hold::{Got, Grant, Predecessor};
use crate::portable::{Sending, info_memory};
use crate::random::until_next_poll;
use crate::sync::{First, Signal, first};

impl Attempt {
    /// Sends a copy to the module or the script.
    pub(crate) async fn copy(&mut self, command: Command<'_>, timeout: Duration) -> Reply {
        if self.is_portable {
            return Box::pin(self.copy_to_script(command, timeout)).await;
        }
        let reply = self.exchange(command.words(&self.request), timeout).await;
        if matches!(&reply, Ok(_) | Err(Failure::Reply(_))) && !reply.as_ref().is_err_and(Failure::is_unknown_command) {
            self.resources.found_module();
        }
        reply
    }

    async fn copy_to_script(&mut self, command: Command<'_>, timeout: Duration) -> Reply {
        if let Some(why) = self.request.needs_module() {
            return Err(self.error(Kind::Unavailable, why));
        }
        let (resources, request) = (Arc::clone(&self.resources), Arc::clone(&self.request));
        let portable = &resources.portable;
        if !portable.knows_policy() {
            let reply = self.exchange(info_memory(), timeout).await;
            portable.learn_policy(reply)?;
        }
        let mut sending = Sending::to_script(portable, &request, command);
        if !request.wait().is_zero() && !resources.notifies.load(Ordering::SeqCst) {
            sending.leave_queue(); // an attempt that cannot wait for messages would starve behind a queue
        }
        loop {
            let reply = self.exchange(sending.cmd(), timeout).await;
            if let Some(reply) = sending.read(reply) {
                return reply;
            }
        }
    }

    /// One exchange. While the previous reply may still arrive, awaits that one instead.
    async fn exchange(&mut self, cmd: Cmd, timeout: Duration) -> Reply {
        self.over()?;
        if self.uses_connection && !self.connection.as_ref().is_some_and(|connection| connection.is_open()) {
            Box::pin(self.take_connection()).await?;
        }
        self.may_be_queued = true;
        if let Some(connection) = self.connection.clone() {
            self.sent = self.now();
            let reply = Box::pin(self.call_own(connection, cmd, timeout)).await;
            let is_closed = matches!(&reply, Err(Failure::Lost(_) | Failure::GivenUp));
            self.may_run |= is_closed && self.is_portable;
            return reply;
        }
        let mut call = if let Some(call) = self.late.take() {
            call
        } else {
            self.sent = self.now();
            self.resources.reach.router.call(self.request.key(), cmd, timeout)
        };
        match first(&mut call, self.cancel.wait()).await {
            First::Left(Err(Failure::Late(call))) => {
                if self.resources.reach.router.passes_late_replies() {
                    self.overdue.push(call);
                } else {
                    self.late = Some(call);
                }
                Err(Failure::no_reply(timeout))
            }
            First::Left(reply) => {
                self.may_run |= matches!(&reply, Err(Failure::Lost(_))) && self.is_portable;
                reply
            }
            First::Right(()) => {
                self.settling = Some(call);
                Err(Failure::GivenUp)
            }
        }
    }

    /// One exchange on the attempt's own connection.
    pub(crate) async fn call_own(&mut self, connection: Arc<Connection>, cmd: Cmd, timeout: Duration) -> Reply {
        if self.session.is_none() {
            return connection.call(&cmd, timeout, &self.cancel).await;
        }
        // It may have other locks, so it stays open if the caller gives up.
        let mut call: Call = Box::pin(async move { connection.call(&cmd, timeout, &Signal::default()).await });
        match first(&mut call, self.cancel.wait()).await {
            First::Left(reply) => reply,
            First::Right(()) => {
                self.settling = Some(call);
                Err(Failure::GivenUp)
            }
        }
    }

    /// Whether a copy may have NOTIFY. A release with the script removes attempts whose channel has no subscriber, so
    /// they join its queue only once the manager has subscribed.
    pub(crate) fn may_join(&self) -> bool {
        !self.is_portable || self.has_place || self.resources.subscription.is_up()
    }

    /// Reads the reply to a copy.
    pub(crate) fn read(&mut self, reply: &Value, waits: bool) -> Result<Asked, Failure> {
        let (token, predecessor) = match reply {
            Value::Nil if !waits => {
                // A copy that does not wait leaves nothing behind.
                self.may_be_queued = self.was_queued || self.may_run || !self.overdue.is_empty();
                return Ok(Asked::Refused);
            }
            Value::Nil if self.is_portable => {
                self.asks_again = Some(until_next_poll()); // the lock was requested without its queue
                return Ok(Asked::Queued);
            }
            Value::Nil => return Ok(Asked::Refused),
            Value::Int(token) => (*token, None),
            Value::Array(result) if self.request.wants_result() && result.len() == 1 => {
                let Some(Value::BulkString(value)) = result.first() else { return Err(self.unexpected(reply)) };
                // The server has forgotten the attempt, unless a copy arrives late.
                self.may_be_queued = !self.overdue.is_empty();
                return Ok(Asked::Got(Got::Result(value.clone())));
            }
            Value::Array(place) if place.len() == 2 && place.first().is_some_and(|it| text(it) == "WAITING") => {
                (self.was_queued, self.has_place) = (true, true);
                let again = place.get(1).and_then(number).and_then(|span| u64::try_from(span).ok());
                self.asks_again = again.map(Duration::from_millis);
                return Ok(Asked::Queued);
            }
            Value::Array(details) if details.len() == 4 => {
                (details.first().and_then(number).unwrap_or(0), Predecessor::read(details))
            }
            reply if text(reply) == "WAITING" => {
                (self.was_queued, self.asks_again) = (true, None);
                self.resources.notify_works.store(true, Ordering::SeqCst);
                return Ok(Asked::Queued);
            }
            _ => (0, None),
        };
        if token <= 0 {
            return Err(self.unexpected(reply));
        }
        Ok(Asked::Got(Got::Lock(Grant::new(token, self.sent, predecessor, self.is_portable))))
    }

    fn unexpected(&self, reply: &Value) -> Failure {
        self.error(Kind::Argument, format!("the server replied {reply:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::ReplyError;
    use crate::options::Options;
    use crate::request::{Form, Request, Sharing};
    use crate::resources::Resources;
    use crate::route::{Router, Servers};

    fn attempt() -> Attempt {
        let servers = Servers::from(redis::Client::open("redis://localhost").unwrap());
        let router = Arc::new(Router::new(servers, Box::new(|_| unreachable!("nothing is sent"))));
        let resources = Resources::new(tokio::runtime::Handle::current(), router, Options::new());
        let request = Request::new(vec![b"a".to_vec()], Duration::from_secs(30), Form::One, Sharing::Alone);
        Attempt::new(Arc::new(resources), Arc::new(request), Arc::default())
    }

    #[tokio::test]
    async fn the_script_says_when_to_ask_again() {
        let mut attempt = attempt();
        attempt.is_portable = true;
        let place = |span| Value::Array(vec![Value::BulkString(b"WAITING".to_vec()), Value::Int(span)]);
        for span in [0, 2000] {
            assert!(matches!(attempt.read(&place(span), true), Ok(Asked::Queued)));
            assert_eq!(attempt.asks_again, Some(Duration::from_millis(span.unsigned_abs())));
        }
        assert!(!attempt.resources.notify_works.load(Ordering::SeqCst), "the module may refuse NOTIFY");
        let free = Value::Array(vec![Value::Int(7), Value::Nil, Value::Nil, Value::Nil]);
        assert!(matches!(attempt.read(&free, true), Ok(Asked::Got(Got::Lock(grant))) if grant.token == 7));
    }

    #[tokio::test]
    async fn an_attempt_joins_the_queue_of_the_script_once_it_is_subscribed() {
        let mut attempt = attempt();
        assert!(attempt.may_join(), "the module reserves a place for it");
        assert!(matches!(attempt.read(&Value::SimpleString("WAITING".into()), true), Ok(Asked::Queued)));
        attempt.is_portable = true;
        assert!(!attempt.may_join(), "the module that had queued it is gone");
        let place = Value::Array(vec![Value::BulkString(b"WAITING".to_vec()), Value::Int(2000)]);
        assert!(matches!(attempt.read(&place, true), Ok(Asked::Queued)) && attempt.may_join());
    }

    #[tokio::test]
    async fn an_array_of_one_is_the_result_for_those_that_want_one() {
        let reply = Value::Array(vec![Value::BulkString(b"42 pages".to_vec())]);
        let mut plain = attempt();
        assert!(plain.read(&reply, true).is_err());
        let mut flight = attempt();
        Arc::make_mut(&mut flight.request).form = Form::Flight;
        flight.may_be_queued = true;
        assert!(matches!(flight.read(&reply, true), Ok(Asked::Got(Got::Result(value))) if value == b"42 pages"));
        assert!(!flight.may_be_queued, "it sends no CANCEL");
        assert!(flight.read(&Value::Array(vec![Value::Int(7)]), true).is_err());
        flight.overdue.push(Box::pin(async { Ok(Value::Nil) }));
        assert!(flight.read(&reply, true).is_ok() && flight.may_be_queued, "a late copy would be a new attempt");
    }

    #[tokio::test]
    async fn a_copy_without_its_queue_is_sent_again_soon() {
        let mut attempt = attempt();
        (attempt.is_portable, attempt.may_be_queued) = (true, true);
        assert!(matches!(attempt.read(&Value::Nil, true), Ok(Asked::Queued)));
        assert!(attempt.asks_again < Some(Duration::from_millis(151)) && attempt.may_be_queued);
        assert!(matches!(attempt.read(&Value::Nil, false), Ok(Asked::Refused)));
        assert!(!attempt.may_be_queued, "the copy leaves nothing behind");
        attempt.may_run = true;
        assert!(matches!(attempt.read(&Value::Nil, false), Ok(Asked::Refused)));
        assert!(attempt.may_be_queued, "an earlier copy may still run");
    }

    #[tokio::test]
    async fn one_attempt_at_a_time_probes_for_the_module() {
        let resources = attempt().resources;
        let unknown = Failure::Reply(ReplyError { code: "ERR".into(), text: "ERR unknown command".into() });
        assert!(!resources.is_portable());
        assert!(resources.missed_module(&unknown) && resources.is_portable() && !resources.asks_for_module());
        resources.found_module();
        assert!(!resources.is_portable());
    }
}
