//! The server in memory, for tokio.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::core::Core;
use super::wire::{manager, words_of};
use crate::aio::Locks;
use crate::{Options, Watch};

/// A lock server in memory. Clones are the same server.
///
/// A method that changes something returns when that has taken effect: waiters have the lock, and `on_lost` has been
/// called. On a single-threaded runtime, as in `#[tokio::test]`, all tasks have done what they do about it. On other
/// runtimes, and on threads of the application, they get a little time.
///
/// ```
/// use std::time::Duration;
///
/// use serverlock::testing::aio::Server;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), serverlock::Error> {
/// let server = Server::new();
/// let (locks, other) = (server.locks(), server.locks()); // like the managers of two processes
/// let held = locks.lock("report", Duration::from_secs(30)).acquire().await?;
///
/// let waiter = tokio::spawn(async move {
///     other.lock("report", Duration::from_secs(30)).wait(Duration::from_secs(60)).acquire().await
/// });
/// server.until_waiting("report", 1).await;
/// server.clock().advance(Duration::from_secs(60)).await;
/// assert!(waiter.await.unwrap().is_err_and(|error| error.is_timeout()));
/// held.release().await?;
/// # Ok(())
/// # }
/// ```
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
    #[cfg(feature = "blocking")]
    pub(super) fn of(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core) }
    }

    /// A server without locks. Its time is midnight UTC on January 1st, 2000: a tick of every usual period of
    /// [`Locks::once`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A manager, for the code under test. Several managers of one server behave like several processes.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn locks(&self) -> Locks {
        self.locks_with_options(Options::default())
    }

    /// Like [`Server::locks`], with options.
    ///
    /// # Panics
    /// Outside a tokio runtime.
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

    /// The leases of the key's holders end now, at the server: the next waiter gets the lock, or `recover`. A holder
    /// finds out on its next renewal, a third of its lease later, or from `verify`, `extend` or `release`.
    pub async fn expire(&self, key: impl AsRef<[u8]>) {
        self.core.expire(key.as_ref());
        self.core.moved.settled(true).await;
    }

    /// The hold is lost: its holder learns that at once, and the next waiter gets the lock.
    pub async fn lose(&self, held: &Watch) {
        self.core.lose(held);
        self.core.moved.settled(true).await;
    }

    /// Until [`Server::allow`], attempts for the key, including those that are waiting, fail as
    /// [`Unavailable`](crate::Kind::Unavailable). Holders keep the lock and can release it, but cannot extend it, so it
    /// ends with its lease.
    pub async fn refuse(&self, key: impl AsRef<[u8]>) {
        self.core.refuse(key.as_ref());
        self.core.moved.settled(true).await;
    }

    /// Ends [`Server::refuse`].
    pub fn allow(&self, key: impl AsRef<[u8]>) {
        self.core.allow(key.as_ref());
    }

    /// How many attempts wait for the key. On a single-threaded runtime, tasks that were spawned before have begun by
    /// then.
    pub async fn waiting(&self, key: impl AsRef<[u8]>) -> usize {
        self.core.moved.settled(true).await;
        self.core.waiting(key.as_ref())
    }

    /// Returns once this many attempts wait for the key: before that, a test should not move the clock.
    ///
    /// # Panics
    /// If that takes longer than a minute.
    pub async fn until_waiting(&self, key: impl AsRef<[u8]>, count: usize) {
        let begun = std::time::Instant::now();
        loop {
            let waiting = self.waiting(key.as_ref()).await;
            if waiting == count {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{waiting} wait, not {count}");
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
    /// leases and of waits, and what they cause. Dropping this future stops the clock where it is.
    pub async fn advance(&self, span: Duration) {
        self.core.moved.settled(false).await;
        let end = self.core.end_of(span);
        while self.core.step(end) {
            self.core.moved.settled(false).await;
        }
        self.core.moved.settled(true).await;
    }
}
