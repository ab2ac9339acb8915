//! What a manager owns and its attempts and holds use: ways to wait, connections, hooks, and whether the server has
//! the module.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::blocking::Blocking;
use crate::callbacks::Callbacks;
use crate::connections::Connections;
use crate::failures::{Failure, Reply, patient};
use crate::options::{Hooks, Options};
use crate::portable::{Portable, Sending, info_memory};
use crate::reach::Reach;
use crate::route::Router;
use crate::server_clock::ServerClock;
use crate::sessions::Sessions;
use crate::subscription::Subscription;

const ASK_FOR_MODULE: Duration = Duration::from_secs(5);

pub(crate) struct Resources {
    pub(crate) reach: Reach,
    pub(crate) subscription: Arc<Subscription>,
    pub(crate) connections: Connections,
    pub(crate) blocking: Arc<Blocking>,
    pub(crate) sessions: Sessions,
    pub(crate) clock: ServerClock,
    pub(crate) portable: Portable,
    pub(crate) hooks: Hooks,
    pub(crate) callbacks: Arc<Callbacks>,
    pub(crate) may_use_scripts: bool,
    warns_without_module: bool,
    process: u32,

    /// Whether attempts may use NOTIFY: true until a reply says otherwise.
    pub(crate) notifies: AtomicBool,
    pub(crate) notify_works: AtomicBool,
    /// When to probe for the module again, in milliseconds of the clock; 0 while it is not known to be missing.
    missed_until: AtomicU64,
    has_warned: AtomicBool,
}

impl Resources {
    pub(crate) fn new(handle: Handle, router: Arc<Router>, options: Options) -> Self {
        let (timeout, clock) = (options.timeout, options.clock);
        let reach = Reach { router, timeout, closed: Arc::default(), clock, handle };
        Self {
            subscription: Arc::new(Subscription::new(reach.clone())),
            connections: Connections::new(reach.clone()),
            blocking: Arc::new(Blocking::new(reach.clone())),
            sessions: Sessions::new(reach.clone()),
            clock: ServerClock::new(reach.clone()),
            portable: Portable::new(reach.clock.clone()),
            reach,
            hooks: options.hooks,
            callbacks: Arc::default(),
            may_use_scripts: options.scripts,
            warns_without_module: options.warns_without_module,
            process: std::process::id(),
            notifies: AtomicBool::new(true),
            notify_works: AtomicBool::new(false),
            missed_until: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.reach.clock.now()
    }

    /// Whether this is a child of the process that created the manager. A child leaves everything alone: connections
    /// and locks belong to its parent, and the thread that would reply was not forked.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Whether the server did not know LOCK.* when it was last asked.
    pub(crate) fn is_portable(&self) -> bool {
        self.missed_until.load(Ordering::SeqCst) != 0
    }

    /// Whether this caller must probe for the module again now.
    pub(crate) fn asks_for_module(&self) -> bool {
        let until = self.missed_until.load(Ordering::SeqCst);
        let is_due = self.now().as_millis() >= u128::from(until);
        is_due && self.missed_until.compare_exchange(until, self.next_ask(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn next_ask(&self) -> u64 {
        u64::try_from(self.now().saturating_add(ASK_FOR_MODULE).as_millis()).unwrap_or(u64::MAX)
    }

    /// Records that the server knows LOCK.*.
    pub(crate) fn found_module(&self) {
        if self.is_portable() {
            self.missed_until.store(0, Ordering::SeqCst);
        }
    }

    /// Records that the server does not know LOCK.*. Returns whether to continue with the scripts.
    pub(crate) fn missed_module(&self, failure: &Failure) -> bool {
        if !self.may_use_scripts {
            return false;
        }
        if self.warns_without_module && !self.has_warned.swap(true, Ordering::SeqCst) {
            let reply = failure.text();
            let text = format!(
                "serverlock: the server has no LOCK.*: locks work through a script, in order of arrival; session, \
                 blocking waits and deadlock detection need the module: {reply}"
            );
            if log::max_level() == log::LevelFilter::Off {
                eprintln!("{text}"); // no logger is set up
            } else {
                log::warn!("{text}");
            }
        }
        self.missed_until.store(self.next_ask(), Ordering::SeqCst);
        true
    }

    /// Sends a command over the application's connections, and waits for a late reply until `until`.
    pub(crate) async fn send(&self, mut sending: Sending<'_>, timeout: Duration, until: Duration) -> Reply {
        let router = &self.reach.router;
        if sending.is_script() && !self.portable.has_asked() {
            self.portable.learn_policy(router.call(sending.key(), info_memory(), timeout).await)?;
        }
        loop {
            let call = router.call(sending.key(), sending.cmd(), timeout);
            if let Some(reply) = sending.read(patient(&self.reach.clock, call, until).await) {
                return reply;
            }
        }
    }

    pub(crate) fn close(&self) {
        self.subscription.close();
        self.connections.close();
        self.blocking.close();
        self.sessions.close();
    }
}
