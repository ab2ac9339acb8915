//! One grant, as its holder sees it: when its lease ends by the local clock, and whether it was lost. Renewal,
//! loss and release meet here from several threads and tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use redis::{Cmd, Value};

use crate::command::Command;
use crate::error::{Error, Kind};
use crate::failures::{Call, Failure, Reply, number, patient, text};
use crate::portable::Sending;
use crate::request::Request;
use crate::resources::Resources;
use crate::sessions::{Losable, Session, Taken};
use crate::sync::{Signal, locked};
use crate::watch::End;
use crate::watching::Watching;

/// A holder that never released its lock: its work may be half done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Predecessor {
    /// How long ago its lock expired.
    pub overdue: Duration,
    /// Its token; 0 if unknown.
    pub token: i64,
    /// Its owner, if it named one.
    pub owner: Option<String>,
}

impl Predecessor {
    /// Reads token, overdue-ms, previous token and previous owner. Returns `None` if the lock was free.
    pub(crate) fn read(details: &[Value]) -> Option<Self> {
        let [_, overdue, token, owner] = details else { return None };
        Some(Self {
            overdue: Duration::from_millis(u64::try_from(number(overdue)?).unwrap_or(0)),
            token: number(token).unwrap_or(0),
            owner: Some(text(owner)).filter(|owner| !owner.is_empty()),
        })
    }
}

/// What an attempt gets.
pub(crate) enum Got<L> {
    Lock(L),
    /// What its holder computed.
    Result(Vec<u8>),
}

/// A grant as it arrives.
pub(crate) struct Grant {
    pub(crate) token: i64,
    /// When its request was sent.
    pub(crate) sent: Duration,
    pub(crate) predecessor: Option<Predecessor>,
    pub(crate) is_portable: bool,
    pub(crate) session: Option<Taken>,
    pub(crate) id: u64,
    /// Copies of the request that may still be carried out.
    pub(crate) overdue: Vec<Call>,
}

impl Grant {
    pub(crate) fn new(token: i64, sent: Duration, predecessor: Option<Predecessor>, is_portable: bool) -> Self {
        Self { token, sent, predecessor, is_portable, session: None, id: 0, overdue: Vec::new() }
    }
}

pub(crate) struct Hold {
    pub(crate) resources: Arc<Resources>,
    pub(crate) request: Arc<Request>,
    pub(crate) token: i64,
    pub(crate) predecessor: Option<Predecessor>,
    pub(crate) began: Duration,
    /// When the granted request was sent.
    pub(crate) requested: Duration,
    pub(crate) granted: Duration,
    session: Mutex<Option<Arc<Session>>>,
    /// Fires when the lock is lost or released.
    pub(crate) over: Signal,
    pub(crate) watching: OnceLock<Watching>,
    /// The number of this hold's newest entry in the timer.
    pub(crate) entry: AtomicU64,
    state: Mutex<State>,
}

struct State {
    /// The start of the lease.
    sent: Duration,
    lease: Duration,
    is_portable: bool,
    /// How many acquisitions have not been released.
    acquired: u32,
    /// Whether the lock was released.
    is_ended: bool,
    /// The server has replied that the grant has ended.
    is_gone: bool,
    is_renewing: bool,
    /// How many EXTENDs are in flight, and the shortest of their leases.
    on_their_way: u32,
    shortest: Duration,
    /// When an EXTEND last failed: the server may still run it a little later.
    failed_at: Option<Duration>,
    lost: Option<Error>,
}

impl State {
    fn ends(&self) -> Duration {
        self.sent.saturating_add(self.lease)
    }

    /// A tenth of the lease before the lease ends.
    fn lost_at(&self) -> Duration {
        self.sent.saturating_add(self.lease.saturating_sub(self.lease / 10))
    }

    fn renew_at(&self) -> Duration {
        self.sent.saturating_add(self.lease / 3)
    }
}

/// The part of a hold that ends with a guard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// One acquisition.
    One,
    /// The whole hold, however often it was acquired.
    Whole,
}

/// The state of a hold when it ended.
pub(crate) struct Ended {
    pub(crate) lost: Option<Error>,
    pub(crate) is_gone: bool,
}

/// The timer's next tasks for a hold.
pub(crate) struct Due {
    pub(crate) renews: bool,
    pub(crate) lost_at: Duration,
}

impl Hold {
    pub(crate) fn new(resources: Arc<Resources>, request: Arc<Request>, grant: Grant, began: Duration) -> Self {
        let state = State {
            sent: grant.sent,
            lease: request.lease,
            is_portable: grant.is_portable,
            acquired: 1,
            is_ended: false,
            is_gone: false,
            is_renewing: false,
            on_their_way: 0,
            shortest: Duration::MAX,
            failed_at: None,
            lost: None,
        };
        let granted = resources.now();
        Self {
            resources,
            request,
            token: grant.token,
            predecessor: grant.predecessor,
            began,
            requested: grant.sent,
            granted,
            session: Mutex::default(),
            over: Signal::default(),
            watching: OnceLock::new(),
            entry: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.resources.now()
    }

    /// Belongs to this session from now on.
    pub(crate) fn join(self: &Arc<Self>, session: Arc<Session>) {
        session.add(self.as_losable());
        *locked(&self.session) = Some(session);
    }

    fn as_losable(self: &Arc<Self>) -> Weak<dyn Losable> {
        let hold: Arc<dyn Losable> = Arc::<Self>::clone(self);
        Arc::downgrade(&hold)
    }

    /// Leaves its session, whose connection closes with the last hold.
    pub(crate) fn leave_session(self: &Arc<Self>) {
        let session = locked(&self.session).take();
        if let Some(session) = session {
            session.remove(&self.as_losable());
        }
    }

    /// Why the lock was lost; `None` while it is held, and after a release in time.
    pub(crate) fn lost(self: &Arc<Self>) -> Option<Error> {
        let state = locked(&self.state);
        let is_late = state.lost.is_none() && !state.is_ended && self.now() >= state.lost_at();
        drop(state);
        if is_late {
            self.lose("its lease was not renewed in time", false);
        }
        locked(&self.state).lost.clone()
    }

    /// Fails unless the lock is certain to be held. Sends nothing.
    pub(crate) fn check(self: &Arc<Self>) -> Result<(), Error> {
        if let Some(lost) = self.inherited().or_else(|| self.lost()) {
            return Err(lost);
        }
        if locked(&self.state).is_ended {
            return Err(self.error("it was released"));
        }
        Ok(())
    }

    /// The error in a forked child, which does not hold the lock.
    fn inherited(&self) -> Option<Error> {
        let reason = "lost: it belongs to the process that this one was forked from";
        self.resources.is_inherited().then(|| self.error(reason))
    }

    fn error(&self, reason: &str) -> Error {
        Error::new(Kind::Lost, &self.request.name, reason)
    }

    pub(crate) fn left(self: &Arc<Self>) -> Duration {
        match self.check() {
            Ok(()) => locked(&self.state).lost_at().saturating_sub(self.now()),
            Err(_) => Duration::ZERO,
        }
    }

    /// Ends the lock without a release, and notifies its user once.
    pub(crate) fn lose(self: &Arc<Self>, why: &str, is_gone: bool) {
        let mut state = locked(&self.state);
        state.is_gone |= is_gone;
        if state.lost.is_some() || state.is_ended {
            return;
        }
        let lost = self.error(&format!("lost: {why}"));
        state.lost = Some(lost.clone());
        drop(state);
        self.over.fire();
        self.notify_loss(lost);
    }

    /// Records that the server no longer has the grant.
    pub(crate) fn taken(self: &Arc<Self>) -> Error {
        self.lose("somebody else has taken it", true);
        self.check().err().unwrap_or_else(|| self.error("lost"))
    }

    /// Call this before an EXTEND is sent. Its reply may be lost, so a lease that ends earlier takes effect at once. If
    /// several are in flight, the server may run them in any order: once one is confirmed, the shortest of their
    /// leases applies, counted from when that one was sent. `None` if the hold was released, so none may be sent.
    pub(crate) fn extending(self: &Arc<Self>, sent: Duration, lease: Duration) -> Option<Extending> {
        let mut state = locked(&self.state);
        if state.is_ended {
            return None;
        }
        state.shortest = if state.on_their_way == 0 { lease } else { lease.min(state.shortest) };
        state.on_their_way = state.on_their_way.saturating_add(1);
        if sent.saturating_add(lease) < state.ends() {
            (state.sent, state.lease) = (sent, lease);
        }
        Some(Extending { hold: Arc::clone(self), sent, lease, is_done: false })
    }

    /// Whether an EXTEND is in flight.
    pub(crate) fn is_changing(&self) -> bool {
        locked(&self.state).on_their_way > 0
    }

    pub(crate) fn failed_at(&self) -> Option<Duration> {
        locked(&self.state).failed_at
    }

    pub(crate) fn is_portable(&self) -> bool {
        locked(&self.state).is_portable
    }

    /// Uses the script from now on, because the module is gone. Returns whether that is new.
    pub(crate) fn make_portable(&self) -> bool {
        !std::mem::replace(&mut locked(&self.state).is_portable, true)
    }

    /// Marks the hold as released; `None` if it already was.
    pub(crate) fn end(self: &Arc<Self>) -> Option<Ended> {
        self.release(Part::Whole).ok().flatten()
    }

    /// Marks this part of the hold as released; `None` if the lock stays held. Fails if the lock is lost but its hold
    /// has not ended, or if the hold has already been released.
    pub(crate) fn release(self: &Arc<Self>, part: Part) -> Result<Option<Ended>, Error> {
        let lost = self.inherited().or_else(|| self.lost());
        let mut state = locked(&self.state);
        if state.is_ended {
            return Err(Error::new(Kind::Misuse, &self.request.name, "it was released before"));
        }
        state.acquired = state.acquired.saturating_sub(1);
        if part == Part::One && state.acquired > 0 {
            return lost.map_or(Ok(None), Err);
        }
        state.is_ended = true;
        let is_gone = state.is_gone;
        drop(state);
        self.over.fire();
        Ok(Some(Ended { lost, is_gone }))
    }

    /// Counts one more acquisition. Returns whether the lock is still held.
    pub(crate) fn acquire_again(&self) -> bool {
        let mut state = locked(&self.state);
        let is_held = state.lost.is_none() && !state.is_ended;
        if is_held {
            state.acquired = state.acquired.saturating_add(1);
        }
        is_held
    }

    pub(crate) fn lost_at(&self) -> Duration {
        locked(&self.state).lost_at()
    }

    pub(crate) fn renew_at(&self) -> Duration {
        locked(&self.state).renew_at()
    }

    pub(crate) fn lease_ends(&self) -> Duration {
        locked(&self.state).ends()
    }

    /// Whether the hold is known to be released or lost, so that it no longer needs a timer.
    pub(crate) fn is_over(&self) -> bool {
        let state = locked(&self.state);
        state.is_ended || state.lost.is_some()
    }

    /// Whether the timer should renew the hold now, and when it will be lost; `None` if it has ended.
    pub(crate) fn due(self: &Arc<Self>) -> Option<Due> {
        self.check().ok()?;
        let mut state = locked(&self.state);
        let time = self.now();
        let may_renew = self.request.settings.max_hold.is_none_or(|most| time < self.granted.saturating_add(most));
        let renews =
            may_renew && !self.resources.reach.closed.is_fired() && !state.is_renewing && time >= state.renew_at();
        state.is_renewing |= renews;
        Some(Due { renews, lost_at: state.lost_at() })
    }

    pub(crate) fn renewed(&self) {
        locked(&self.state).is_renewing = false;
    }

    /// A command for the hold, to the module or the script, whichever last knew it.
    pub(crate) fn sending<'a>(&'a self, command: Command<'a>) -> Sending<'a> {
        if self.is_portable() {
            return Sending::to_script(&self.resources.portable, &self.request, command);
        }
        Sending::to_module(&self.request, command)
    }

    /// Returns whether to send a command again, because the module is gone. The script stores the same value.
    pub(crate) fn missed(&self, failure: &Failure) -> bool {
        let may_use_scripts = failure.is_unknown_command() && self.resources.may_use_scripts;
        may_use_scripts && self.request.needs_module().is_none() && self.make_portable()
    }

    /// Sends a command, through the script if the module is gone.
    pub(crate) async fn send(&self, command: Command<'_>) -> Reply {
        let timeout = self.resources.reach.timeout;
        loop {
            let until = self.now().saturating_add(timeout);
            match self.resources.send(self.sending(command), timeout, until).await {
                Err(failure) if self.missed(&failure) => {}
                reply => return reply,
            }
        }
    }

    /// Sends the words, and sends them again if the module is gone.
    pub(crate) async fn send_words(&self, words: impl Fn() -> Cmd) -> Reply {
        let reach = &self.resources.reach;
        loop {
            let call = reach.router.call(self.request.key(), words(), reach.timeout);
            match patient(&reach.clock, call, self.now().saturating_add(reach.timeout)).await {
                Err(failure) if self.missed(&failure) => {}
                reply => return reply,
            }
        }
    }

    /// Called once.
    fn notify_loss(&self, lost: Error) {
        log::warn!("serverlock: {lost}");
        if let Some(watching) = self.watching.get() {
            watching.ended(End::Lost, Some(&lost));
        }
        let (hook, on_lost) = (self.resources.hooks.lost.clone(), self.request.settings.on_lost.clone());
        if hook.is_none() && on_lost.is_none() {
            return;
        }
        let work = self.resources.reach.clock.work();
        let (name, held) = (Arc::clone(&self.request.name), self.now().saturating_sub(self.granted));
        // The functions may be slow. If one panics, the other is still called.
        self.resources.callbacks.call(&self.resources.reach.handle, move || {
            if let Some(hook) = &hook {
                let _ = catch_unwind(AssertUnwindSafe(|| hook(&name, held, &lost)));
            }
            if let Some(on_lost) = on_lost {
                on_lost(&lost);
            }
            drop(work);
        });
    }

    /// The reply to a fenced command, as the caller wants it.
    pub(crate) fn converted<T: redis::FromRedisValue>(&self, value: Value) -> Result<T, Error> {
        let reply = T::from_redis_value(value);
        reply.map_err(|error| Error::new(Kind::Argument, &self.request.name, format!("unexpected reply: {error}")))
    }
}

/// An EXTEND in flight, until this is dropped.
pub(crate) struct Extending {
    hold: Arc<Hold>,
    sent: Duration,
    lease: Duration,
    is_done: bool,
}

impl Extending {
    /// Call this if its reply is late and nobody waits for it. The EXTEND counts as in flight until the reply arrives.
    pub(crate) fn await_late(self, late: Call) {
        let reach = self.hold.resources.reach.clone();
        reach.clone().spawn(async move {
            reach.outlast(late).await;
            drop(self);
        });
    }

    /// Call this once the server has confirmed the EXTEND.
    pub(crate) fn done(mut self) {
        self.is_done = true;
        let mut state = locked(&self.hold.state);
        if state.lost.is_none() {
            (state.sent, state.lease) = (self.sent, self.lease.min(state.shortest));
        }
    }
}

impl Drop for Extending {
    fn drop(&mut self) {
        let mut state = locked(&self.hold.state);
        state.on_their_way = state.on_their_way.saturating_sub(1);
        if !self.is_done {
            state.failed_at = Some(self.hold.now());
        }
    }
}

impl Losable for Hold {
    fn session_ended(self: Arc<Self>) {
        self.lose("the connection of its session has closed", true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::options::{Hooks, Options};
    use crate::request::{Form, Sharing};
    use crate::route::{Router, Servers};

    /// A renewal, a session and a check of the clock may notice the same loss, one after the other.
    #[test]
    fn a_loss_is_reported_once() {
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let called = Arc::new(AtomicUsize::new(0));
        let [by_hook, by_lock] = [(); 2].map(|()| Arc::clone(&called));
        let hooks = Hooks::new().lost(move |_, _, _| _ = by_hook.fetch_add(1, Ordering::SeqCst));
        let servers = Servers::from(redis::Client::open("redis://localhost").unwrap());
        let router = Arc::new(Router::new(servers, Box::new(|_| unreachable!("nothing is sent"))));
        let resources = Arc::new(Resources::new(runtime.handle().clone(), router, Options::new().hooks(hooks)));
        let mut request = Request::new(vec![b"report".to_vec()], Duration::from_secs(30), Form::One, Sharing::Alone);
        request.settings.on_lost = Some(Arc::new(move |_| _ = by_lock.fetch_add(1, Ordering::SeqCst)));
        let (now, request) = (resources.now(), Arc::new(request));
        let grant = Grant::new(1, now, None, false);
        let hold = Arc::new(Hold::new(Arc::clone(&resources), request, grant, now));
        hold.lose("its connection has ended", true);
        hold.lose("somebody else has taken it", true);
        assert!(hold.lost().is_some_and(|lost| lost.to_string().ends_with("lost: its connection has ended")));
        hold.end();
        hold.lose("somebody else has taken it", true);
        let begun = Instant::now();
        while !resources.callbacks.is_idle() {
            assert!(begun.elapsed() < Duration::from_secs(60), "they are called");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(called.load(Ordering::SeqCst), 2, "once by the hook, once by the lock");
    }

    #[test]
    fn details_name_a_predecessor_or_none() {
        let free = [Value::Int(7), Value::Nil, Value::Nil, Value::Nil];
        assert_eq!(Predecessor::read(&free), None);
        let left = [Value::Int(7), Value::Int(20), Value::Int(5), Value::BulkString(b"bob".to_vec())];
        let expected = Predecessor { overdue: Duration::from_millis(20), token: 5, owner: Some("bob".into()) };
        assert_eq!(Predecessor::read(&left), Some(expected));
        let unknown = [Value::Int(7), Value::Int(20), Value::Nil, Value::Nil];
        assert_eq!(Predecessor::read(&unknown).map(|it| (it.token, it.owner)), Some((0, None)));
    }
}
