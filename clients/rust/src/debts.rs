//! What could not be given back at once, and is given back in the background.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::clock::now;
use crate::failures::{Call, Failure, Reply};
use crate::portable::info_memory;
use crate::request::Request;
use crate::resources::Resources;

const PAUSE: Duration = Duration::from_millis(250);

impl Resources {
    /// Retries in the background until it works, or until that time.
    pub(crate) fn owe<F>(self: &Arc<Self>, until: Duration, debt: impl Fn(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), Failure>> + Send,
    {
        let resources = Arc::clone(self);
        self.reach.spawn(async move {
            while let Err(failure) = debt(Arc::clone(&resources)).await {
                if resources.reach.closed.is_fired() || now() >= until || failure.is_final() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Withdraws an attempt: at once if the server replies, else in the background.
    pub(crate) async fn cancel(
        self: &Arc<Self>,
        request: &Arc<Request>,
        id: u64,
        is_portable: bool,
        is_reachable: bool,
    ) {
        if is_reachable && self.settle(request, id, is_portable).await.is_ok() {
            return;
        }
        let span = request.lease.saturating_add(Duration::from_secs(2)).max(self.reach.timeout);
        let request = Arc::clone(request);
        self.owe(now().saturating_add(span), move |resources| {
            let request = Arc::clone(&request);
            async move { resources.settle(&request, id, is_portable).await }
        });
    }

    /// Awaits the reply to a copy of an attempt that went on without it. A copy that comes after the release gets the
    /// lock once more, or a place in the queue: it is withdrawn, unless the lock is still held.
    pub(crate) fn settle_late(
        self: &Arc<Self>,
        request: &Arc<Request>,
        late: Call,
        id: u64,
        is_portable: bool,
        is_held: impl Fn() -> bool + Send + 'static,
    ) {
        let (resources, request) = (Arc::clone(self), Arc::clone(request));
        self.reach.spawn(async move {
            resources.reach.outlast(late).await;
            if !is_held() {
                resources.cancel(&request, id, is_portable, true).await;
            }
        });
    }

    async fn settle(&self, request: &Request, id: u64, is_portable: bool) -> Result<(), Failure> {
        if is_portable {
            return self.settle_by_script(request, id).await;
        }
        for key in request.keys.iter() {
            let mut cmd = Cmd::new();
            cmd.arg("LOCK.CANCEL").arg(key.as_slice()).arg(id);
            match self.reach.router.call(key, cmd, self.reach.timeout).await {
                Ok(_) => {}
                // It was asked for the module, which is not loaded.
                Err(failure) if failure.is_unknown_command() && request.needs_module().is_none() => {
                    return self.settle_by_script(request, id).await;
                }
                Err(failure) if failure.is_unknown_command() => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Releases what this attempt was granted, if it was.
    async fn settle_by_script(&self, request: &Request, id: u64) -> Result<(), Failure> {
        let portable = &self.portable;
        if !portable.knows_policy() {
            let reply = self.reach.router.call(request.key(), info_memory(), self.reach.timeout).await;
            portable.learn_policy(reply)?;
        }
        let reply = self.by_script(request, || portable.probe(request, id)).await?;
        if let Value::Int(token) = reply {
            self.by_script(request, || portable.release(request, token)).await?;
        }
        Ok(())
    }

    async fn by_script(&self, request: &Request, words: impl Fn() -> Cmd) -> Reply {
        let reply = self.reach.router.call(request.key(), words(), self.reach.timeout).await;
        if reply.as_ref().is_err_and(|failure| failure.code() == Some("NOSCRIPT")) {
            self.portable.missed();
            return self.reach.router.call(request.key(), words(), self.reach.timeout).await;
        }
        reply
    }
}
