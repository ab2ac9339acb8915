//! Locks in a cluster: slots that move, a cluster that is down, masters that change. Waiters get their redirection or
//! error in time, a server grants no lock in a slot that it does not own, and a move loses no lock.
//!
//! Clusters are started by `scripts/cluster.sh`. Two are shared, one test at a time: a test leaves its cluster intact,
//! and a test that breaks one for good starts its own.

mod databases;
mod down;
mod failover;
mod follower;
mod grace;
mod migrate;
mod notify;
mod routing;
mod sessions;
mod several;
mod slots;
mod unserved;
mod waiters;

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use testkit::cluster::{nodes, Cluster};

/// A shared cluster, for one test at a time.
pub struct Turn(MutexGuard<'static, Option<Cluster>>);

impl Deref for Turn {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.0.as_ref().expect("it was started")
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
            // The next test must not inherit the state of a failed one.
            *self.0 = None;
        } else if let Some(cluster) = &mut *self.0 {
            cluster.rests();
        }
    }
}

type Shared = Mutex<Option<Cluster>>;

fn turn(shared: &'static Shared, settings: &str) -> Turn {
    let mut cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster_is_new = cluster.is_none();
    cluster.get_or_insert_with(|| Cluster::start(settings, "margin-ms 0")).works();
    let turn = Turn(cluster);
    if !cluster_is_new {
        turn.wait_until_healthy();
    }
    turn
}

/// The shared cluster that keeps nothing on disk.
pub fn in_memory() -> Turn {
    static SHARED: Shared = Mutex::new(None);
    turn(&SHARED, "appendonly no")
}

/// The shared cluster with an AOF.
pub fn with_aof() -> Turn {
    static SHARED: Shared = Mutex::new(None);
    turn(&SHARED, "appendonly yes")
}
