//! Session locks that share a connection.

use std::fmt;
use std::sync::Arc;

use super::lock::Lock;
use crate::held::{Owner, session_methods};
use crate::request::{Form, Request, Sharing};
use crate::sessions::Group;

/// Locks with the option `session` that share a connection: those of one caller. So the server sees who holds one lock
/// and waits for another, and a wait that would close a cycle fails as [`Deadlock`](crate::Kind::Deadlock) at once. In
/// a cluster, they share one for each server. Clones belong to the same session.
///
/// The connection closes with the last of its locks; if it ends earlier, they are all lost. One attempt at a time uses
/// it; meanwhile, another one uses a connection of its own.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn transfer(locks: &serverlock::Locks) -> Result<(), serverlock::Error> {
/// let (session, lease) = (locks.session(), Duration::from_secs(30));
/// let from = session.lock("account 1", lease).acquire()?;
/// let to = session.lock("account 2", lease).wait(Duration::from_secs(60)).acquire()?;
/// # drop((from, to));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    pub(super) owner: Arc<Owner>,
    pub(super) group: Arc<Group>,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    session_methods!(Lock);
}
