//! A few connections for calls that need one to themselves: blocking waits, and WAIT behind a grant.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::engine::Engine;
use crate::judge::Fault;
use crate::line::Line;
use crate::sync::{First, Signal, first, locked};

const MOST_LINES: usize = 8;

/// The right to one of the lines.
pub(crate) type Turn = OwnedSemaphorePermit;

pub(crate) struct Lines {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
    idle: Mutex<Vec<Arc<Line>>>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { turns: Arc::new(Semaphore::new(MOST_LINES)), waiting: AtomicUsize::new(0), idle: Mutex::default() }
    }

    pub(crate) fn in_use(&self) -> usize {
        MOST_LINES.saturating_sub(self.turns.available_permits())
    }

    /// How many are kept for the next wait.
    pub(crate) fn idle(&self) -> usize {
        locked(&self.idle).len()
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Nothing when none came free in time, or the caller or the manager is done.
    pub(crate) async fn turn(&self, engine: &Engine, timeout: Duration, cancel: &Signal) -> Option<Turn> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Some(turn);
        }
        let _waiting = Waiting::new(&self.waiting);
        let over = first(cancel.wait(), engine.closed.wait());
        let turn = tokio::time::timeout(timeout, Arc::clone(&self.turns).acquire_owned());
        match first(turn, over).await {
            First::Left(Ok(Ok(turn))) => Some(turn),
            _ => None,
        }
    }

    /// A line that was kept, or a new one.
    pub(crate) async fn line(&self, engine: &Engine, key: &[u8]) -> Result<Arc<Line>, Fault> {
        loop {
            let kept = locked(&self.idle).pop();
            match kept {
                Some(line) if line.is_open() => return Ok(line),
                Some(_) => {}
                None => return engine.router.dial(key, engine.timeout).await,
            }
        }
    }

    /// In a cluster each key has its own server: a line kept for another one would be of no use.
    pub(crate) async fn give_back(&self, engine: &Engine, line: Arc<Line>) {
        if line.is_open() && !engine.router.is_cluster() && !engine.closed.is_fired() {
            locked(&self.idle).push(line);
        } else {
            line.close().await;
        }
    }

    pub(crate) fn close(&self) {
        for line in std::mem::take(&mut *locked(&self.idle)) {
            line.close_soon();
        }
    }
}

/// Counts those that wait for a turn.
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
