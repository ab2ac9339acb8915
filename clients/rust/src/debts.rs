//! Releases and cancellations that did not succeed at once: retried in the background.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::command::Command;
use crate::failures::{Call, Failure, Reply};
use crate::portable::Sending;
use crate::request::Request;
use crate::resources::Resources;

const PAUSE: Duration = Duration::from_millis(250);
/// How long the server may still run a call after its connection was closed.
pub(crate) const LATE_COPY: Duration = Duration::from_secs(2);

impl Resources {
    /// Pays the debt in the background, and retries until that succeeds, or until `until`.
    pub(crate) fn owe<F>(self: &Arc<Self>, until: Duration, debt: impl Fn(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), Failure>> + Send,
    {
        let resources = Arc::clone(self);
        self.reach.spawn(async move {
            while let Err(failure) = debt(Arc::clone(&resources)).await {
                if resources.reach.closed.is_fired() || resources.now() >= until || failure.is_final() {
                    return;
                }
                resources.reach.clock.sleep(PAUSE).await;
            }
        });
    }

    /// Withdraws an attempt: at once if the server replies, otherwise in the background. The script does not block the
    /// ID, so the attempt is withdrawn once more if the server may still run one of its calls.
    pub(crate) async fn cancel(
        self: &Arc<Self>,
        request: &Arc<Request>,
        id: u64,
        is_portable: bool,
        is_reachable: bool,
        may_run: bool,
    ) {
        let span = request.lease.saturating_add(LATE_COPY).max(self.reach.timeout);
        let (until, owed) = (self.now().saturating_add(span), Arc::clone(request));
        let debt = move |resources: Arc<Self>| {
            let request = Arc::clone(&owed);
            async move { resources.settle(&request, id, is_portable).await }
        };
        if !is_reachable || self.settle(request, id, is_portable).await.is_err() {
            self.owe(until, debt.clone());
        }
        if may_run {
            self.owe_late(until, debt);
        }
    }

    /// Pays the debt in the background once no earlier call can still be carried out.
    pub(crate) fn owe_late<F>(self: &Arc<Self>, until: Duration, debt: impl Fn(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), Failure>> + Send,
    {
        let resources = Arc::clone(self);
        self.reach.spawn(async move {
            resources.reach.clock.timeout(LATE_COPY, resources.reach.closed.wait()).await;
            resources.owe(until, debt);
        });
    }

    /// Awaits the reply to a copy whose attempt continued without it. A copy that runs after the release gets the lock
    /// once more, or a place in the queue. It is then withdrawn, unless the lock is still held.
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
            let may_run = resources.reach.outlast(late).await && is_portable;
            if !is_held() {
                resources.cancel(&request, id, is_portable, true, may_run).await;
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
                // The copy went to the module, which is not loaded.
                Err(failure) if failure.is_unknown_command() && request.needs_module().is_none() => {
                    return self.settle_by_script(request, id).await;
                }
                Err(failure) if failure.is_unknown_command() => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Ends this attempt's wait, and releases its grant.
    async fn settle_by_script(&self, request: &Request, id: u64) -> Result<(), Failure> {
        if self.portable.has_queue(request) {
            let channel = self.subscription.channel();
            match self.by_script(request, Command::Cancel { id, channel }).await {
                Err(failure) if failure.refuses_queue() && request.works_alone() => {}
                reply => return reply.map(|_| ()),
            }
        }
        if let Value::Int(token) = self.by_script(request, Command::Probe { id }).await? {
            self.by_script(request, Command::Release { token, result: None }).await?;
        }
        Ok(())
    }

    async fn by_script(&self, request: &Request, command: Command<'_>) -> Reply {
        let sending = Sending::to_script(&self.portable, request, command);
        self.send(sending, self.reach.timeout, Duration::ZERO).await
    }
}
