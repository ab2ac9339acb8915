//! The connections of session locks. Those of one group share one, so that the server sees a client that holds one lock
//! and waits for another, and finds deadlocks.
//!
//! One attempt at a time uses a session's connection. Meanwhile, another attempt of the same group gets a new one. A
//! connection is closed with its last hold, and its end loses all of its locks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::connection::Connection;
use crate::failures::Failure;
use crate::reach::Reach;
use crate::sync::locked;

/// Locks that share their connections.
#[derive(Default)]
pub(crate) struct Group {
    sessions: Mutex<Vec<Weak<Session>>>,
}

/// A connection and its holds. It belongs to them, and to the attempt that uses it.
pub(crate) struct Session {
    pub(crate) connection: Arc<Connection>,
    /// The address of its server in a cluster.
    server: Option<String>,
    is_taken: AtomicBool,
    holds: Arc<Holds>,
}

/// A hold that ends with its session.
pub(crate) trait Losable: Send + Sync {
    fn session_ended(self: Arc<Self>);
}

type Holds = Mutex<Vec<Weak<dyn Losable>>>;

/// The use of a session by one attempt, until this is dropped.
pub(crate) struct Taken(Arc<Session>);

pub(crate) struct Sessions {
    reach: Reach,
    all: Mutex<Vec<Weak<Session>>>,
}

impl Group {
    /// An open session with this server that no attempt uses.
    fn take(&self, server: Option<&str>) -> Option<Taken> {
        let is_free = |session: &Arc<Session>| {
            let fits = session.server.as_deref() == server && session.connection.is_open();
            fits && !session.is_taken.swap(true, Ordering::SeqCst)
        };
        locked(&self.sessions).iter().filter_map(Weak::upgrade).find(is_free).map(Taken)
    }
}

impl Taken {
    /// The session of the hold that the attempt got.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.0)
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.0.connection
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::SeqCst);
    }
}

impl Session {
    /// Adds a hold, which is lost when the connection ends.
    pub(crate) fn add(&self, hold: Weak<dyn Losable>) {
        let mut holds = locked(&self.holds);
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(hold);
        drop(holds);
        if !self.connection.is_open() {
            lose_all(&self.holds);
        }
    }

    pub(crate) fn remove(&self, hold: &Weak<dyn Losable>) {
        locked(&self.holds).retain(|other| !Weak::ptr_eq(other, hold));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.close_soon();
    }
}

fn lose_all(holds: &Holds) {
    let lost = std::mem::take(&mut *locked(holds));
    for hold in lost.iter().filter_map(Weak::upgrade) {
        hold.session_ended();
    }
}

impl Sessions {
    pub(crate) fn new(reach: Reach) -> Self {
        Self { reach, all: Mutex::default() }
    }

    /// The group's session with the server of the key, or a new one.
    pub(crate) async fn take(&self, group: &Group, key: &[u8]) -> Result<Taken, Failure> {
        let reach = &self.reach;
        let server = reach.router.server_of(key, reach.timeout).await?;
        if let Some(taken) = group.take(server.as_deref()) {
            return Ok(taken);
        }
        let connection = reach.router.dial_at(server.as_deref(), reach.timeout).await?;
        let (ending, holds) = (Arc::clone(&connection), Arc::<Holds>::default());
        let taken =
            Taken(Arc::new(Session { connection, server, is_taken: AtomicBool::new(true), holds: Arc::clone(&holds) }));
        reach.spawn(async move {
            ending.ended().await;
            lose_all(&holds);
        });
        for list in [&self.all, &group.sessions] {
            let mut list = locked(list);
            list.retain(|session| session.strong_count() > 0);
            list.push(Arc::downgrade(&taken.0));
        }
        Ok(taken)
    }

    fn open(&self) -> Vec<Arc<Session>> {
        locked(&self.all).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.open().len()
    }

    /// Closes the connections on which attempts wait, or whose reply is still to be read.
    pub(crate) fn close(&self) {
        for session in self.open() {
            if session.is_taken.load(Ordering::SeqCst) {
                session.connection.close_soon();
                lose_all(&session.holds);
            }
        }
    }
}
