//! A few connections for calls that need one of their own: blocking waits, and WAIT after a grant.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::Connection;
use crate::failures::Failure;
use crate::reach::Reach;
use crate::sync::{First, Signal, first, locked};

const MOST_CONNECTIONS: usize = 8;

/// The permit for one of the connections.
pub(crate) type Turn = OwnedSemaphorePermit;

pub(crate) struct Connections {
    reach: Reach,
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
    idle: Mutex<Vec<Arc<Connection>>>,
}

impl Connections {
    pub(crate) fn new(reach: Reach) -> Self {
        let turns = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        Self { reach, turns, waiting: AtomicUsize::new(0), idle: Mutex::default() }
    }

    pub(crate) fn in_use(&self) -> usize {
        MOST_CONNECTIONS.saturating_sub(self.turns.available_permits())
    }

    /// How many are kept for the next wait.
    pub(crate) fn idle(&self) -> usize {
        locked(&self.idle).len()
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Returns `None` if none became free in time, or the caller or the manager is done.
    pub(crate) async fn turn(&self, timeout: Duration, cancel: &Signal) -> Option<Turn> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Some(turn);
        }
        let _waiting = Waiting::new(&self.waiting);
        let over = first(cancel.wait(), self.reach.closed.wait());
        let turn = self.reach.clock.timeout(timeout, Arc::clone(&self.turns).acquire_owned());
        match first(turn, over).await {
            First::Left(Some(Ok(turn))) => Some(turn),
            _ => None,
        }
    }

    /// A kept connection, or a new one.
    pub(crate) async fn connection(&self, key: &[u8]) -> Result<Arc<Connection>, Failure> {
        loop {
            let kept = locked(&self.idle).pop();
            match kept {
                Some(connection) if connection.is_open() => return Ok(connection),
                Some(_) => {}
                None => return self.reach.dial(key).await,
            }
        }
    }

    /// In a cluster, no connection is kept, because the next key may be on another server.
    pub(crate) async fn give_back(&self, connection: Arc<Connection>) {
        if connection.is_open() && !self.reach.router.is_cluster() && !self.reach.closed.is_fired() {
            locked(&self.idle).push(connection);
        } else {
            connection.close().await;
        }
    }

    pub(crate) fn close(&self) {
        for connection in std::mem::take(&mut *locked(&self.idle)) {
            connection.close_soon();
        }
    }
}

/// Counts the calls that wait for a turn.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
