//! A manager's work: attempts, renewal, and commands for held locks.

use std::sync::Arc;
use std::time::Duration;

use redis::{Arg, Cmd, Value};
use tokio::runtime::Handle;

use crate::attempt::Attempt;
use crate::command::Command;
use crate::error::{Error, Kind};
use crate::failures::{Failure, number, text};
use crate::flights::Flights;
use crate::hold::{Got, Grant, Hold};
use crate::options::Options;
use crate::portable::FENCED;
use crate::reach::Reach;
use crate::renewal::Timer;
use crate::request::{Request, lease_failure};
use crate::resources::Resources;
use crate::route::Router;
use crate::sync::{First, Signal, first};
use crate::watching::Watching;

const FENCED_BY_MODULE: &str = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end \
                                return {redis.call(unpack(ARGV, 2))}";

pub(crate) struct Engine {
    pub(crate) resources: Arc<Resources>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) flights: Arc<Flights>,
}

impl Engine {
    pub(crate) fn new(handle: Handle, router: Arc<Router>, options: Options) -> Arc<Self> {
        let resources = Arc::new(Resources::new(handle, router, options));
        let timer = Arc::new(Timer::new(resources.reach.clock.clone()));
        Arc::new(Self { resources, timer, flights: Arc::default() })
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.resources.reach
    }

    /// Fails if nothing may be sent for this request.
    pub(crate) fn admit(&self, request: &Request) -> Result<(), Error> {
        request.check()?;
        if self.resources.is_inherited() {
            let reason = "its Locks belong to the process that this one was forked from: create new ones";
            return Err(Error::new(Kind::Misuse, &request.name, reason));
        }
        if self.resources.reach.closed.is_fired() {
            return Err(Error::new(Kind::Misuse, &request.name, "its Locks are closed"));
        }
        Ok(())
    }

    /// Fails at once if the caller gives up, or the manager is closed.
    pub(crate) async fn unless_over<T>(
        &self,
        name: &Arc<str>,
        cancel: &Signal,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let closed = &self.resources.reach.closed;
        match first(first(cancel.wait(), closed.wait()), work).await {
            First::Right(done) if !cancel.is_fired() && !closed.is_fired() => done,
            _ if cancel.is_fired() => Err(Failure::GivenUp.typed(name)),
            _ => Err(Error::new(Kind::Misuse, name, "its Locks are closed")),
        }
    }

    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: Arc<Request>,
        cancel: Arc<Signal>,
    ) -> Result<Arc<Hold>, Error> {
        let name = Arc::clone(&request.name);
        match self.acquire_or_result(request, cancel).await? {
            Got::Lock(hold) => Ok(hold),
            // Only single_flight asks for results.
            Got::Result(_) => Err(Error::new(Kind::Argument, &name, "the server replied with a result")),
        }
    }

    pub(crate) async fn acquire_or_result(
        self: &Arc<Self>,
        request: Arc<Request>,
        cancel: Arc<Signal>,
    ) -> Result<Got<Arc<Hold>>, Error> {
        self.admit(&request)?;
        let watching = Watching::begin(&self.resources, &request);
        let attempt = Attempt::new(Arc::clone(&self.resources), Arc::clone(&request), cancel);
        let began = attempt.began;
        let got = attempt.run().await.inspect_err(|error| {
            if error.kind() != Kind::Cancelled
                && let Some(refused) = &self.resources.hooks.refused
            {
                refused(&request.name, self.resources.now().saturating_sub(began), error);
            }
            if let Some(watching) = &watching {
                watching.failed(error);
            }
        })?;
        Ok(match got {
            Got::Lock(grant) => Got::Lock(self.hold(request, grant, began, watching)),
            Got::Result(value) => {
                if let Some(watching) = watching {
                    watching.result();
                }
                Got::Result(value)
            }
        })
    }

    fn hold(
        self: &Arc<Self>,
        request: Arc<Request>,
        mut grant: Grant,
        began: Duration,
        watching: Option<Watching>,
    ) -> Arc<Hold> {
        let (overdue, id, is_portable) = (std::mem::take(&mut grant.overdue), grant.id, grant.is_portable);
        let session = grant.session.take();
        let hold = Arc::new(Hold::new(Arc::clone(&self.resources), request, grant, began));
        if let Some(watching) = watching {
            watching.granted(hold.is_portable(), hold.token, hold.granted);
            _ = hold.watching.set(watching);
        }
        for late in overdue {
            let weak = Arc::downgrade(&hold);
            let is_held = move || weak.upgrade().is_some_and(|hold| !hold.is_over());
            self.resources.settle_late(&hold.request, late, id, is_portable, is_held);
        }
        if let Some(session) = session {
            hold.join(session.session());
        }
        // The hook is called first, because a hold would be renewed forever if the hook panicked and no caller got it.
        if let Some(granted) = &self.resources.hooks.granted {
            granted(&hold.request.name, hold.granted.saturating_sub(began));
        }
        self.timer.add(&hold);
        hold
    }

    pub(crate) async fn extend(self: &Arc<Self>, hold: &Arc<Hold>, lease: Duration) -> Result<(), Error> {
        if let Some(reason) = lease_failure(lease) {
            return Err(Error::new(Kind::Argument, &hold.request.name, reason));
        }
        hold.check()?;
        let Some(extending) = hold.extending(hold.now(), lease) else { return hold.check() };
        self.timer.add(hold); // even if the caller no longer waits for the reply
        let reply = match hold.send(Command::Extend { token: hold.token, lease }).await {
            Err(Failure::Late(late)) => {
                extending.await_late(late);
                return Err(Failure::no_reply(self.resources.reach.timeout).typed(&hold.request.name));
            }
            reply => reply.map_err(|failure| failure.typed(&hold.request.name))?,
        };
        if number(&reply) != Some(1) {
            return Err(hold.taken());
        }
        extending.done();
        self.timer.add(hold);
        hold.check()
    }

    /// Asks the server how much of the lease is left.
    pub(crate) async fn verify(self: &Arc<Self>, hold: &Arc<Hold>) -> Result<Duration, Error> {
        hold.check()?;
        let mut least = hold.left();
        for nth in 0..hold.request.keys.len() {
            let reply = hold.send(Command::Check { token: hold.token, number: nth }).await;
            let reply = reply.map_err(|failure| failure.typed(&hold.request.name))?;
            let left = number(&reply).and_then(|left| u64::try_from(left).ok()).unwrap_or(0);
            if left == 0 {
                return Err(hold.taken());
            }
            least = least.min(Duration::from_millis(left));
        }
        Ok(least)
    }

    /// Runs one command only if the lock is held, checked in the same step.
    pub(crate) async fn fenced(self: &Arc<Self>, hold: &Arc<Hold>, command: &Cmd) -> Result<Value, Error> {
        hold.check()?;
        let args: Vec<&[u8]> = command
            .args_iter()
            .map(|arg| match arg {
                Arg::Simple(bytes) => bytes,
                _ => b"0",
            })
            .collect();
        let Some(key) = args.get(1) else {
            return Err(Error::new(
                Kind::Argument,
                &hold.request.name,
                "the command has no key, which must be its first argument",
            ));
        };
        let words = || {
            let mut cmd = Cmd::new();
            let script = if hold.is_portable() { FENCED } else { FENCED_BY_MODULE };
            cmd.arg("EVAL").arg(script).arg(2).arg(hold.request.key()).arg(*key).arg(hold.token).arg(&args);
            cmd
        };
        match hold.send_words(words).await.map_err(|failure| failure.typed(&hold.request.name))? {
            Value::Array(list) => match list.into_iter().next() {
                Some(lost) if text(&lost) == "LOCK.LOST" => Err(hold.taken()),
                reply => Ok(reply.unwrap_or(Value::Nil)),
            },
            reply => Ok(reply),
        }
    }

    pub(crate) fn notify_release(&self, hold: &Hold, in_time: bool) {
        if let Some(released) = &self.resources.hooks.released {
            released(&hold.request.name, self.resources.now().saturating_sub(hold.granted), in_time);
        }
    }

    pub(crate) fn census(&self) -> Vec<(&'static str, usize)> {
        let resources = &self.resources;
        let (slots, queue) = resources.reach.router.in_use();
        vec![
            ("slots", slots),
            ("queue", queue),
            ("waiting", resources.subscription.count()),
            ("connections", resources.connections.in_use()),
            ("sessions", resources.sessions.count()),
            ("flights", self.flights.count()),
            // The library has a task for each connection.
            ("tasks", self.reach().handle.metrics().num_alive_tasks().saturating_sub(resources.connections.idle())),
        ]
    }

    pub(crate) fn close(&self) {
        self.resources.reach.closed.fire();
        self.timer.close();
        self.resources.close();
    }
}
