//! The server in memory, for threads.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::core::Core;
use super::wire::{manager, words_of};
use crate::{Locks, Options, Watch};

/// A lock server in memory. Clones are the same server.
///
/// A method that changes something returns when that has taken effect: waiters have the lock, and `on_lost` has been
/// called. The application's own threads then get a little time. If they compute for longer, the test has to wait for
/// them.
#[derive(Clone)]
pub struct Server {
    core: Arc<Core>,
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("time", &self.core.time()).finish_non_exhaustive()
    }
}

impl Default for Server {
    fn default() -> Self {
        Self { core: Core::new() }
    }
}

impl Server {
    /// A server without locks. Its time is midnight UTC on January 1st, 2000: a tick of every usual period of
    /// [`Locks::once`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A manager, for the code under test. Several managers of one server behave like several processes.
    ///
    /// # Panics
    /// Like [`Locks::new`].
    #[must_use]
    pub fn locks(&self) -> Locks {
        self.locks_with_options(Options::default())
    }

    /// Like [`Server::locks`], with options.
    ///
    /// # Panics
    /// Like [`Locks::new`].
    #[must_use]
    pub fn locks_with_options(&self, options: Options) -> Locks {
        let (servers, options, opens) = manager(&self.core, options);
        Locks::build(servers, options, opens)
    }

    /// The clock of the server and of its managers.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock { core: Arc::clone(&self.core) }
    }

    /// The same server for tokio.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn aio(&self) -> super::aio::Server {
        super::aio::Server::of(&self.core)
    }

    /// The leases of the key's holders end now, at the server: the next waiter gets the lock, or `recover`. A holder
    /// finds out on its next renewal, a third of its lease later, or from `verify`, `extend` or `release`.
    pub fn expire(&self, key: impl AsRef<[u8]>) {
        self.core.expire(key.as_ref());
        self.core.moved.settle(true);
    }

    /// The hold is lost: its holder learns that at once, and the next waiter gets the lock.
    pub fn lose(&self, held: &Watch) {
        self.core.lose(held);
        self.core.moved.settle(true);
    }

    /// Until [`Server::allow`], attempts for the key, including those that are waiting, fail as
    /// [`Unavailable`](crate::Kind::Unavailable). Holders keep the lock and can release it, but cannot extend it, so it
    /// ends with its lease.
    pub fn refuse(&self, key: impl AsRef<[u8]>) {
        self.core.refuse(key.as_ref());
        self.core.moved.settle(true);
    }

    /// Ends [`Server::refuse`].
    pub fn allow(&self, key: impl AsRef<[u8]>) {
        self.core.allow(key.as_ref());
    }

    /// How many attempts wait for the key.
    #[must_use]
    pub fn waiting(&self, key: impl AsRef<[u8]>) -> usize {
        self.core.moved.settle(false);
        self.core.waiting(key.as_ref())
    }

    /// Returns once this many attempts wait for the key: before that, a test should not move the clock.
    ///
    /// # Panics
    /// If that takes longer than a minute.
    pub fn until_waiting(&self, key: impl AsRef<[u8]>, count: usize) {
        let begun = std::time::Instant::now();
        loop {
            let waiting = self.waiting(key.as_ref());
            if waiting == count {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{waiting} wait, not {count}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends a command to the server, for this project's tests.
    ///
    /// # Errors
    /// The text of the server's error reply.
    #[doc(hidden)]
    pub fn call(&self, cmd: &redis::Cmd) -> Result<redis::Value, String> {
        self.core.call(&words_of(cmd))
    }
}

/// The clock of a server in memory and its managers. It stands still until a test moves it.
#[derive(Clone)]
pub struct Clock {
    core: Arc<Core>,
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Clock").field(&self.now()).finish()
    }
}

impl Clock {
    /// The server's time.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.core.time()
    }

    /// Moves the clock. Everything that falls due in the meantime happens in chronological order: renewals, the ends of
    /// leases and of waits, and what they cause.
    pub fn advance(&self, span: Duration) {
        self.core.moved.settle(false);
        let end = self.core.end_of(span);
        while self.core.step(end) {
            self.core.moved.settle(false);
        }
        self.core.moved.settle(true);
    }
}
