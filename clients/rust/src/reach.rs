//! What the parts of a manager share to reach its servers.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::failures::{Call, Failure};
use crate::route::Router;
use crate::sync::{First, Signal, first};

/// Clones share its state.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) router: Arc<Router>,
    /// How long a reply may take.
    pub(crate) timeout: Duration,
    /// Fires when the manager is closed.
    pub(crate) closed: Arc<Signal>,
    pub(crate) clock: Clock,
    pub(crate) handle: Handle,
}

impl Reach {
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.handle.spawn(self.clock.followed(work))
    }

    /// Waits until a late reply has arrived, or can no longer arrive, or the manager is closed. Returns whether the
    /// server may still run the call.
    pub(crate) async fn outlast(&self, mut late: Call) -> bool {
        loop {
            match first(late, self.closed.wait()).await {
                First::Left(Err(Failure::Late(again))) => late = again,
                First::Left(reply) => return reply.is_err_and(|failure| failure.is_connection_lost()),
                First::Right(()) => return true,
            }
        }
    }

    /// Opens a dedicated connection to the server that has the key.
    pub(crate) async fn dial(&self, key: &[u8]) -> Result<Arc<Connection>, Failure> {
        self.router.dial(key, self.timeout).await
    }
}
