//! Options for a manager, and for a lock.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::Error;
use crate::watch::AttemptWatch;

type Waited = Arc<dyn Fn(&str, Duration) + Send + Sync>;
type Failed = Arc<dyn Fn(&str, Duration, &Error) + Send + Sync>;
type Released = Arc<dyn Fn(&str, Duration, bool) + Send + Sync>;
type Began = Arc<dyn Fn(&[&[u8]]) -> Option<Box<dyn AttemptWatch>> + Send + Sync>;

/// Functions that are called when locks are granted, refused, lost and released, with the key and the time waited or
/// held. They must not block.
///
/// ```
/// use serverlock::{Hooks, Options};
///
/// let hooks = Hooks::new().granted(|key, waited| println!("{key}: granted after {waited:?}"));
/// let options = Options::new().hooks(hooks);
/// ```
#[derive(Clone, Default)]
pub struct Hooks {
    pub(crate) granted: Option<Waited>,
    pub(crate) refused: Option<Failed>,
    pub(crate) lost: Option<Failed>,
    pub(crate) released: Option<Released>,
    pub(crate) began: Option<Began>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Hooks").finish_non_exhaustive()
    }
}

impl Hooks {
    /// Creates hooks without any functions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Called with the key and the time waited.
    #[must_use]
    pub fn granted(mut self, hook: impl Fn(&str, Duration) + Send + Sync + 'static) -> Self {
        self.granted = Some(Arc::new(hook));
        self
    }

    /// Called with the key, the time waited, and why.
    #[must_use]
    pub fn refused(mut self, hook: impl Fn(&str, Duration, &Error) + Send + Sync + 'static) -> Self {
        self.refused = Some(Arc::new(hook));
        self
    }

    /// Called with the key, the time held, and why.
    #[must_use]
    pub fn lost(mut self, hook: impl Fn(&str, Duration, &Error) + Send + Sync + 'static) -> Self {
        self.lost = Some(Arc::new(hook));
        self
    }

    /// Called with the key, the time held, and whether it was held to the end.
    #[must_use]
    pub fn released(mut self, hook: impl Fn(&str, Duration, bool) + Send + Sync + 'static) -> Self {
        self.released = Some(Arc::new(hook));
        self
    }

    /// Called with the keys by the thread or task that asks for a lock, before anything is sent. What it returns
    /// follows this attempt and its lock.
    #[must_use]
    pub fn began(mut self, hook: impl Fn(&[&[u8]]) -> Option<Box<dyn AttemptWatch>> + Send + Sync + 'static) -> Self {
        self.began = Some(Arc::new(hook));
        self
    }
}

/// A manager's options.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) timeout: Duration,
    pub(crate) scripts: bool,
    pub(crate) warns_without_module: bool,
    pub(crate) hooks: Hooks,
    pub(crate) clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            scripts: true,
            warns_without_module: true,
            hooks: Hooks::default(),
            clock: Clock::default(),
        }
    }
}

impl Options {
    /// Five seconds for a reply, scripts if the module is not loaded, no hooks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long one reply may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Turns scripts off: attempts fail as [`Unavailable`](crate::Kind::Unavailable) if the module is not loaded.
    #[must_use]
    pub fn without_scripts(mut self) -> Self {
        self.scripts = false;
        self
    }

    /// Whether one warning reports that the module is not loaded: through the `log` crate, or on stderr if no logger is
    /// set up. The default is true.
    #[must_use]
    pub fn warn_without_module(mut self, warns: bool) -> Self {
        self.warns_without_module = warns;
        self
    }

    /// Sets the functions that are called when locks are granted, refused, lost and released.
    #[must_use]
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }
}

/// The options of everything that acquires a lock, on a type with a field `request: Arc<Request>`.
macro_rules! common_options {
    () => {
        fn with(mut self, change: impl FnOnce(&mut $crate::request::Settings)) -> Self {
            change(&mut std::sync::Arc::make_mut(&mut self.request).settings);
            self
        }

        /// A label that others can see, 1 to 128 visible ASCII characters. It does not affect grants. The default is
        /// `host:pid`.
        #[must_use]
        pub fn owner(self, owner: impl Into<String>) -> Self {
            self.with(|it| it.owner = $crate::label::Label::Named(owner.into()))
        }

        /// No label is sent: for clients of the same lock that expect its value to be a number.
        #[must_use]
        pub fn without_owner(self) -> Self {
            self.with(|it| it.owner = $crate::label::Label::Off)
        }

        /// The lease is no longer renewed after this time.
        #[must_use]
        pub fn max_hold(self, time: std::time::Duration) -> Self {
            self.with(|it| it.max_hold = Some(time))
        }

        /// Called once, on one of the manager's threads, when the lock is lost. Only two losses are reported at a time,
        /// so it should not take long.
        #[must_use]
        pub fn on_lost(self, lost: impl Fn(&$crate::Error) + Send + Sync + 'static) -> Self {
            self.with(|it| it.on_lost = Some(std::sync::Arc::new(lost)))
        }
    };
}

/// The options of a grant that others must confirm, on a type with the method `with`.
macro_rules! confirming_options {
    () => {
        /// This many replicas must confirm the grant within that time; otherwise the lock is released.
        #[must_use]
        pub fn replicas(self, count: u32, within: std::time::Duration) -> Self {
            self.with(|it| (it.replicas, it.within) = (count, within))
        }

        /// The server, and as many replicas as `replicas` demands, must have the grant on disk within that time
        /// (WAITAOF, Redis 7.2 and later); otherwise the lock is released.
        #[must_use]
        pub fn fsync(self, within: std::time::Duration) -> Self {
            self.with(|it| (it.fsync, it.within) = (true, if it.replicas > 0 { it.within.max(within) } else { within }))
        }
    };
}

/// A lock's options, on a type with a field `request: Arc<Request>`.
macro_rules! lock_options {
    () => {
        $crate::options::common_options!();
        $crate::options::confirming_options!();

        /// Waits in the queue for at most this long. Without this option, an attempt that finds the lock taken is
        /// refused at once.
        #[must_use]
        pub fn wait(self, wait: std::time::Duration) -> Self {
            self.with(|it| it.wait = wait)
        }

        /// The lock has its own connection, and ends one second after that connection closes. It needs the module. The
        /// locks of a [`Session`](super::Session) have this option, and share a connection.
        #[must_use]
        pub fn session(self) -> Self {
            self.with(|it| it.session = true)
        }

        /// A caller that already holds this lock gets the same hold again, instead of an error: the work within its
        /// `run` and, with threads, the thread that acquired it. The lock is released with the last of its `Held`s, or
        /// at the end of the outermost `run`. It is the same lock if its keys and its kind (`lock`, `shared`, `limit`)
        /// are.
        ///
        /// This is off by default, because code that asks twice for the same lock usually does not know that it is
        /// already inside. Within `run`, tasks and futures that run at the same time are one caller: the lock does not
        /// keep them apart.
        #[must_use]
        pub fn reentrant(self) -> Self {
            self.with(|it| it.reentrant = true)
        }

        /// Others cannot get the lock for at least this long, however soon it is released.
        #[must_use]
        pub fn at_least(self, time: std::time::Duration) -> Self {
            self.with(|it| it.at_least = time)
        }
    };
}

/// The options of `once`, on a type with the fields `request: Arc<Request>` and `reruns: bool`.
macro_rules! once_options {
    () => {
        $crate::options::common_options!();
        $crate::options::confirming_options!();

        /// The lease while the body runs, at most half of the period. The default is 10 s, or a quarter of the period
        /// if that is shorter.
        #[must_use]
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            std::sync::Arc::make_mut(&mut self.request).lease = lease;
            self
        }

        /// Whether a tick runs again if its process dies. The default is true. If it is false, the lease lasts until
        /// the end of the tick's window from the start, and the body may take nine tenths of what is left of the
        /// window.
        #[must_use]
        pub fn rerun(mut self, reruns: bool) -> Self {
            self.reruns = reruns;
            self
        }
    };
}

/// The options of `single_flight`, on a type with a field `request: Arc<Request>`.
macro_rules! flight_options {
    () => {
        $crate::options::common_options!();

        /// How long a caller waits for the value, or for its turn to compute it: at least 1 ms. The default is 60 s.
        #[must_use]
        pub fn wait(self, wait: std::time::Duration) -> Self {
            self.with(|it| it.wait = wait)
        }
    };
}

pub(crate) use {common_options, confirming_options, flight_options, lock_options, once_options};
