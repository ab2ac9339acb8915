//! Code shared by both forms of a held lock, and a view of a held lock that does not keep it held.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::Error;
use crate::hold::Hold;
use crate::sync::Signal;

/// Cancels attempts from outside. The attempts to which it was passed fail as [`Cancelled`](crate::Kind::Cancelled),
/// and leave nothing behind. Clones share its state.
#[derive(Clone, Debug, Default)]
pub struct Cancel(pub(crate) Arc<Signal>);

impl Cancel {
    /// Creates a `Cancel` that is not cancelled yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the attempts, including later ones.
    pub fn cancel(&self) {
        self.0.fire();
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_fired()
    }
}

/// A view of a held lock for other threads and tasks. It does not keep the lock held, and only the lock's owner can
/// release it.
#[derive(Clone)]
pub struct Watch {
    hold: Arc<Hold>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Watch").field("key", &self.key()).field("token", &self.token()).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(hold: &Arc<Hold>) -> Self {
        Self { hold: Arc::clone(hold) }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The key, or the keys, quoted.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.hold.request.name
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.hold.token
    }

    /// How long the lock is certain to stay held if no renewal succeeds; 0 once it is lost or released.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.hold.left()
    }

    /// Fails unless the lock is certain to be held. Sends nothing.
    ///
    /// # Errors
    /// [`Lost`](crate::Kind::Lost).
    pub fn check(&self) -> Result<(), Error> {
        self.hold.check()
    }

    /// Waits until the lock is lost or released, and returns the error that [`Watch::check`] returns from then on. This
    /// works in any async runtime.
    pub async fn over(&self) -> Error {
        self.hold.over.wait().await;
        self.hold.check().err().unwrap_or_else(|| self.hold.taken())
    }
}

/// The users' handle to a manager. Dropping the last one closes the manager's connections.
pub(crate) struct Owner {
    pub(crate) engine: Arc<Engine>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if !self.engine.resources.is_inherited() {
            self.engine.close();
        }
    }
}

/// The methods of a held lock that send nothing, on a type with the fields `hold: Arc<Hold>`, `owner: Arc<Owner>` and
/// `part: Option<Part>`.
macro_rules! held_methods {
    () => {
        /// One acquisition.
        pub(super) fn new(hold: Arc<Hold>, owner: Arc<Owner>) -> Self {
            Self { hold, owner, part: Some(Part::One) }
        }

        /// The acquisition of an outermost scope, whose end releases the lock.
        pub(super) fn outermost(mut self) -> Self {
            self.part = Some(Part::Whole);
            self
        }

        /// Marks the acquisition as released; `None` if the lock stays held.
        fn end(&mut self) -> Result<Option<Ended>, Error> {
            self.part.take().map_or(Ok(None), |part| self.hold.release(part))
        }

        /// The key, or the keys, quoted.
        #[must_use]
        pub fn key(&self) -> &str {
            &self.hold.request.name
        }

        /// The fencing token. It grows with each grant of the key: pass it to the storage with each write.
        #[must_use]
        pub fn token(&self) -> i64 {
            self.hold.token
        }

        /// The last holder, if it never released the lock; requires `details` or `recover`.
        #[must_use]
        pub fn predecessor(&self) -> Option<&$crate::Predecessor> {
            self.hold.predecessor.as_ref()
        }

        /// How long it took to get the lock.
        #[must_use]
        pub fn waited(&self) -> std::time::Duration {
            self.hold.granted.saturating_sub(self.hold.began)
        }

        /// How long the lock is certain to stay held if no renewal succeeds; 0 once it is lost.
        #[must_use]
        pub fn left(&self) -> std::time::Duration {
            self.hold.left()
        }

        /// Fails unless the lock is certain to be held. It sends nothing: call it before each step of the work.
        ///
        /// # Errors
        /// [`Lost`]($crate::Kind::Lost).
        pub fn check(&self) -> Result<(), $crate::Error> {
            self.hold.check()
        }

        /// A view of the hold for other threads and tasks, which neither releases the lock nor keeps it held.
        #[must_use]
        pub fn watch(&self) -> $crate::Watch {
            $crate::Watch::new(&self.hold)
        }
    };
}

/// The methods that describe locks, on a type with the method `described`.
macro_rules! describing_methods {
    ($lock:ident) => {
        /// A lock that has one holder at a time.
        pub fn lock(&self, key: impl AsRef<[u8]>, lease: std::time::Duration) -> $lock {
            self.described(vec![key.as_ref().to_vec()], lease, Form::One, Sharing::Alone)
        }

        /// A lock that any number of holders share (readers); a holder of `lock` (a writer) excludes them.
        pub fn shared(&self, key: impl AsRef<[u8]>, lease: std::time::Duration) -> $lock {
            self.described(vec![key.as_ref().to_vec()], lease, Form::One, Sharing::Shared)
        }

        /// A lock that has at most n holders at a time.
        pub fn limit(&self, key: impl AsRef<[u8]>, n: u32, lease: std::time::Duration) -> $lock {
            self.described(vec![key.as_ref().to_vec()], lease, Form::One, Sharing::Limit(n))
        }

        /// A lock on all of the keys or none of them, under one token. An attempt holds none of them while it waits. In
        /// a cluster, the keys must be in one slot. Without the module, an attempt polls, and gets no key that others
        /// wait for.
        pub fn all_of<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>, lease: std::time::Duration) -> $lock {
            let keys = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
            self.described(keys, lease, Form::Many, Sharing::Alone)
        }

        /// A lock that can be acquired only if its last holder never released it; that holder is the `predecessor`. An
        /// attempt does not wait.
        pub fn recover(&self, key: impl AsRef<[u8]>, lease: std::time::Duration) -> $lock {
            self.described(vec![key.as_ref().to_vec()], lease, Form::Recovery, Sharing::Alone)
        }
    };
}

/// The methods of a manager, on a type with a field `owner: Arc<Owner>`.
macro_rules! locks_methods {
    ($lock:ident, $leader:ident, $once:ident, $flight:ident, $session:ident) => {
        $crate::held::describing_methods!($lock);

        /// Locks with the option `session` that share a connection.
        #[must_use]
        pub fn session(&self) -> $session {
            $session { owner: Arc::clone(&self.owner), group: Arc::default() }
        }

        /// A body that runs once per period in one of the processes that ask: for cron jobs. A period is at least 10 s.
        /// A call is for the nearest multiple of the period on the server's clock. It does not wait, and needs
        /// permission to run TIME.
        pub fn once(&self, key: impl AsRef<[u8]>, period: std::time::Duration) -> $once {
            let request = Arc::new($crate::once::request_of(key.as_ref(), period));
            $once { owner: Arc::clone(&self.owner), request, period, reruns: true }
        }

        /// A value that many callers need at the same moment, such as a cache entry that has expired: one of them
        /// computes it, and all that wait, in any process, get the same bytes. If a process dies, another one computes
        /// once its lease has ended.
        pub fn single_flight(&self, key: impl AsRef<[u8]>, lease: std::time::Duration) -> $flight {
            let request = Arc::new($crate::single_flight::request_of(key.as_ref(), lease));
            $flight { owner: Arc::clone(&self.owner), request }
        }

        /// A campaign for a key, whose lock is held for as long as its holder lives. It waits for a minute at a time.
        pub fn leader(&self, key: impl AsRef<[u8]>, lease: std::time::Duration) -> $leader {
            $leader::new(self.lock(key, lease).wait(std::time::Duration::from_secs(60)))
        }

        /// Counts what is kept for callers, by name, for this project's tests that look for leaks.
        #[doc(hidden)]
        pub fn census(&self) -> Vec<(&'static str, usize)> {
            self.owner.engine.census()
        }

        fn described(&self, keys: Vec<Vec<u8>>, lease: std::time::Duration, form: Form, sharing: Sharing) -> $lock {
            let request = Arc::new(Request::new(keys, lease, form, sharing));
            $lock { owner: Arc::clone(&self.owner), request }
        }

        /// Closes its own connections. After that, held locks are no longer renewed, and attempts fail as
        /// [`Misuse`]($crate::Kind::Misuse). The application's connections stay open. Dropping the last of these
        /// `Locks`, their descriptions and their holds does the same.
        pub fn close(&self) {
            self.owner.engine.close();
        }
    };
}

/// The methods of a group of session locks, on a type with the fields `owner: Arc<Owner>` and `group: Arc<Group>`.
macro_rules! session_methods {
    ($lock:ident) => {
        $crate::held::describing_methods!($lock);

        fn described(&self, keys: Vec<Vec<u8>>, lease: std::time::Duration, form: Form, sharing: Sharing) -> $lock {
            let mut request = Request::new(keys, lease, form, sharing);
            request.settings.session = true;
            request.settings.group = Some(Arc::clone(&self.group));
            $lock { owner: Arc::clone(&self.owner), request: Arc::new(request) }
        }
    };
}

pub(crate) use {describing_methods, held_methods, locks_methods, session_methods};
