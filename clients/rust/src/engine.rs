//! What a manager does: attempts, renewal, and what is asked about locks that are held.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::{Arg, Cmd, Value};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::attempt::Attempt;
use crate::clock::now;
use crate::error::{Error, Kind};
use crate::hold::Hold;
use crate::judge::{Fault, Reply, number, text};
use crate::line::Line;
use crate::lines::Lines;
use crate::options::{Hooks, Options};
use crate::portable::{FENCED, Portable};
use crate::request::{Form, Request, lease_fault};
use crate::server::Router;
use crate::solo::Solo;
use crate::subscription::Subscription;
use crate::sync::{Signal, locked};
use crate::tellers::Tellers;
use crate::timer::{Timer, patient};

const ASK_FOR_MODULE: Duration = Duration::from_secs(5);
const FENCED_BY_MODULE: &str = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end \
                                return {redis.call(unpack(ARGV, 2))}";

pub(crate) struct Engine {
    pub(crate) timeout: Duration,
    pub(crate) router: Arc<Router>,
    pub(crate) timer: Timer,
    pub(crate) subscription: Subscription,
    pub(crate) lines: Lines,
    pub(crate) solo: Solo,
    pub(crate) portable: Portable,
    pub(crate) closed: Signal,
    hooks: Hooks,
    may_be_script: bool,
    warns_without_module: bool,
    tellers: Arc<Tellers>,
    handle: Handle,
    process: u32,

    /// Until the server says otherwise.
    pub(crate) notifies: AtomicBool,
    pub(crate) notify_works: AtomicBool,
    /// Milliseconds of the clock.
    missed_until: AtomicU64,
    has_warned: AtomicBool,
    sessions: Mutex<Vec<Weak<Line>>>,
}

impl Engine {
    pub(crate) fn new(handle: Handle, router: Arc<Router>, options: Options) -> Arc<Self> {
        Arc::new(Self {
            timeout: options.timeout,
            router,
            timer: Timer::default(),
            subscription: Subscription::new(),
            lines: Lines::new(),
            solo: Solo::default(),
            portable: Portable::new(),
            closed: Signal::default(),
            hooks: options.hooks,
            may_be_script: options.scripts,
            warns_without_module: options.warns_without_module,
            tellers: Arc::default(),
            handle,
            process: std::process::id(),
            notifies: AtomicBool::new(true),
            notify_works: AtomicBool::new(false),
            missed_until: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
            sessions: Mutex::default(),
        })
    }

    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.handle.spawn(work)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Whether this is a child of the process that it was made in. A child leaves what it finds alone: its connections
    /// and locks are its parent's, and the thread that would answer was not forked.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: Arc<Request>,
        cancel: Arc<Signal>,
    ) -> Result<Arc<Hold>, Error> {
        request.check()?;
        if self.is_inherited() {
            let reason = "its Locks belong to the process that this one was forked from: make new ones";
            return Err(Error::new(Kind::Misuse, &request.name, reason));
        }
        if self.closed.is_fired() {
            return Err(Error::new(Kind::Misuse, &request.name, "its Locks are closed"));
        }
        let attempt = Attempt::new(Arc::clone(self), Arc::clone(&request), cancel);
        let began = attempt.began;
        let grant = attempt.run().await.inspect_err(|error| {
            if error.kind() != Kind::Cancelled
                && let Some(refused) = &self.hooks.refused
            {
                refused(&request.name, now().saturating_sub(began), error);
            }
        })?;
        let hold = Arc::new(Hold::new(Arc::clone(self), request, grant, began));
        if let Some(line) = &hold.line {
            self.watch(&hold, line);
        }
        // The hook first: a hold would be renewed for ever if nobody got it because the hook panicked.
        if let Some(granted) = &self.hooks.granted {
            granted(&hold.request.name, hold.granted.saturating_sub(began));
        }
        self.timer.add(&hold);
        Ok(hold)
    }

    /// The end of its session is a loss at once.
    fn watch(&self, hold: &Arc<Hold>, line: &Arc<Line>) {
        let mut sessions = locked(&self.sessions);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(line));
        drop(sessions);
        let (hold, line) = (Arc::downgrade(hold), Arc::clone(line));
        self.spawn(async move {
            line.ended().await;
            if let Some(hold) = hold.upgrade() {
                hold.lose("the connection of its session has ended", true);
            }
        });
    }

    /// Ends an attempt: at once if that can be done, else in the background.
    pub(crate) async fn cancel(
        self: &Arc<Self>,
        request: &Arc<Request>,
        id: u64,
        is_portable: bool,
        is_reachable: bool,
    ) {
        if is_reachable && self.settle_attempt(request, id, is_portable).await.is_ok() {
            return;
        }
        let until = now().saturating_add(request.lease.saturating_add(Duration::from_secs(2)).max(self.timeout));
        let request = Arc::clone(request);
        self.owe(until, move |engine| {
            let request = Arc::clone(&request);
            async move { engine.settle_attempt(&request, id, is_portable).await }
        });
    }

    async fn settle_attempt(self: &Arc<Self>, request: &Request, id: u64, is_portable: bool) -> Result<(), Fault> {
        if is_portable {
            return self.cancel_by_script(request, id).await;
        }
        for key in request.keys.iter() {
            let mut cmd = Cmd::new();
            cmd.arg("LOCK.CANCEL").arg(key.as_slice()).arg(id);
            match self.router.call(key, cmd, self.timeout).await {
                Ok(_) => {}
                // It was asked for the module, which is not loaded.
                Err(fault) if fault.is_unknown_command() && request.needs_module().is_none() => {
                    return self.cancel_by_script(request, id).await;
                }
                Err(fault) if fault.is_unknown_command() => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    pub(crate) fn extend_words(&self, hold: &Hold, lease: Duration) -> Cmd {
        if hold.is_portable() {
            return self.portable.extend(&hold.request, hold.token, lease);
        }
        hold.request.extend(hold.token, lease)
    }

    pub(crate) async fn extend(self: &Arc<Self>, hold: &Arc<Hold>, lease: Duration) -> Result<(), Error> {
        if let Some(reason) = lease_fault(lease) {
            return Err(Error::new(Kind::Argument, &hold.request.name, reason));
        }
        hold.check()?;
        let extending = hold.extending(now(), lease);
        self.timer.add(hold); // also if nobody waits for the reply any more
        let reply = self.ask(hold, hold.request.key(), || self.extend_words(hold, lease)).await?;
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
        for key in hold.request.keys.iter() {
            let words = || {
                if hold.is_portable() {
                    return self.portable.check(&hold.request, hold.token);
                }
                let mut cmd = Cmd::new();
                cmd.arg("LOCK.CHECK").arg(key.as_slice()).arg(hold.token);
                cmd
            };
            let reply = self.ask(hold, key, words).await?;
            let left = number(&reply).and_then(|left| u64::try_from(left).ok()).unwrap_or(0);
            if left == 0 {
                return Err(hold.taken());
            }
            least = least.min(Duration::from_millis(left));
        }
        Ok(least)
    }

    /// Runs one command only if the lock is held, in one step with the look.
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
                "command has no key: its first argument is one",
            ));
        };
        let words = || {
            let mut cmd = Cmd::new();
            let script = if hold.is_portable() { FENCED } else { FENCED_BY_MODULE };
            cmd.arg("EVAL").arg(script).arg(2).arg(hold.request.key()).arg(*key).arg(hold.token).arg(&args);
            cmd
        };
        match self.ask(hold, hold.request.key(), words).await? {
            Value::Array(list) => match list.into_iter().next() {
                Some(lost) if text(&lost) == "LOCK.LOST" => Err(hold.taken()),
                reply => Ok(reply.unwrap_or(Value::Nil)),
            },
            reply => Ok(reply),
        }
    }

    /// Sends a command for a lock that is held; again if the module, or the script, is gone.
    pub(crate) async fn ask(&self, hold: &Arc<Hold>, key: &[u8], words: impl Fn() -> Cmd) -> Result<Value, Error> {
        self.sent(hold, key, words).await.map_err(|fault| fault.typed(&hold.request.name))
    }

    pub(crate) async fn sent(&self, hold: &Arc<Hold>, key: &[u8], words: impl Fn() -> Cmd) -> Reply {
        let mut tries = 0_u32;
        loop {
            let call = self.router.call(key, words(), self.timeout);
            match patient(call, now().saturating_add(self.timeout)).await {
                Err(fault) if tries < 2 && self.missed(hold, &fault) => tries = tries.saturating_add(1),
                reply => return reply,
            }
        }
    }

    /// Called once for each hold that is lost.
    pub(crate) fn tell_loss(&self, hold: &Arc<Hold>, lost: Error) {
        log::warn!("serverlock: {lost}");
        let (hook, on_lost) = (self.hooks.lost.clone(), hold.request.settings.on_lost.clone());
        if hook.is_none() && on_lost.is_none() {
            return;
        }
        let (name, held) = (Arc::clone(&hold.request.name), now().saturating_sub(hold.granted));
        // They may take their time, and one that panics keeps nothing from the other.
        self.tellers.tell(&self.handle, move || {
            if let Some(hook) = &hook {
                let _ = catch_unwind(AssertUnwindSafe(|| hook(&name, held, &lost)));
            }
            if let Some(on_lost) = on_lost {
                on_lost(&lost);
            }
        });
    }

    pub(crate) fn tell_release(&self, hold: &Hold, in_time: bool) {
        if let Some(released) = &self.hooks.released {
            released(&hold.request.name, now().saturating_sub(hold.granted), in_time);
        }
    }

    /// Whether to ask with the scripts, because the server did not know LOCK.* a moment ago.
    pub(crate) fn is_portable(&self) -> bool {
        now().as_millis() < u128::from(self.missed_until.load(Ordering::SeqCst))
    }

    /// Whether to go on with the scripts.
    pub(crate) fn miss_module(&self, fault: &Fault) -> bool {
        if !self.may_be_script {
            return false;
        }
        if self.warns_without_module && !self.has_warned.swap(true, Ordering::SeqCst) {
            let said = fault.text();
            let text = format!(
                "serverlock: the server has no LOCK.*; locks work by script, without order among waiters: {said}"
            );
            if log::max_level() == log::LevelFilter::Off {
                eprintln!("{text}"); // nobody has set up a log
            } else {
                log::warn!("{text}");
            }
        }
        let until = now().saturating_add(ASK_FOR_MODULE).as_millis();
        self.missed_until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::SeqCst);
        true
    }

    /// Whether to go on because the module, or the script, is gone. The scripts know the same value.
    pub(crate) fn missed(&self, hold: &Hold, fault: &Fault) -> bool {
        if fault.code() == Some("NOSCRIPT") && hold.is_portable() {
            self.portable.missed();
            return true;
        }
        let needs_module = hold.request.needs_module().is_some() || hold.request.form == Form::Many;
        fault.is_unknown_command() && !needs_module && self.may_be_script && hold.make_portable()
    }

    pub(crate) fn census(&self) -> Vec<(&'static str, usize)> {
        let (slots, queue) = self.router.in_use();
        vec![
            ("slots", slots),
            ("queue", queue),
            ("waiting", self.subscription.count()),
            ("lines", self.lines.in_use()),
            ("sessions", locked(&self.sessions).iter().filter(|line| line.strong_count() > 0).count()),
            // The library has a task for each connection.
            ("tasks", self.handle.metrics().num_alive_tasks().saturating_sub(self.lines.idle())),
        ]
    }

    pub(crate) fn close(&self) {
        self.closed.fire();
        self.timer.close();
        self.subscription.close();
        self.lines.close();
        self.solo.close();
        for line in std::mem::take(&mut *locked(&self.sessions)) {
            if let Some(line) = line.upgrade() {
                line.close_soon();
            }
        }
    }
}
