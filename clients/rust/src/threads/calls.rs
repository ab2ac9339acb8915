//! Sends commands through the application's closure. The closure's connections cannot be closed here, so it runs on its
//! own thread, and a late reply is awaited. A few closures run at a time: W8 and H16 of `docs/CLIENT_SPEC.md`.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::pipeline::connection_of_caller;
use crate::connection::Connection;
use crate::failures::{Call, Failure, Reply, in_time, read};
use crate::route::{Server, Servers};

const AT_ONCE: usize = 4;

/// Sends one command.
type Run = Arc<dyn Fn(&Cmd) -> RedisResult<Value> + Send + Sync>;

pub(crate) struct Theirs {
    servers: Servers,
    run: Run,
    turns: Arc<Semaphore>,
}

/// A closure on its thread. If it has not begun when this is dropped, it never will, because its caller is gone.
struct Running(JoinHandle<Reply>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Theirs {
    pub(crate) fn new(servers: Servers, run: impl Fn(&Cmd) -> RedisResult<Value> + Send + Sync + 'static) -> Self {
        Self { servers, run: Arc::new(run), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Server for Theirs {
    fn call(&self, cmd: Cmd, _: bool, timeout: Duration) -> Call {
        let (run, turns) = (Arc::clone(&self.run), Arc::clone(&self.turns));
        let call = async move {
            let Ok(Ok(turn)) = tokio::time::timeout(timeout, turns.acquire_owned()).await else {
                return Err(Failure::broken(format!("no connection came free within {timeout:?}")));
            };
            let work = move || {
                let reply = read(run(&cmd));
                drop(turn);
                reply
            };
            let mut running = Running(tokio::task::spawn_blocking(work));
            (&mut running.0)
                .await
                .unwrap_or_else(|_| Err(Failure::broken("the closure panicked, or the runtime is ending")))
        };
        in_time(Box::pin(call), timeout)
    }

    fn narrow(&self, _: Box<dyn FnOnce() + Send>) -> bool {
        true
    }

    fn widen(&self) {}

    fn in_use(&self) -> (usize, usize) {
        (AT_ONCE.saturating_sub(self.turns.available_permits()), 0)
    }

    fn connection(&self, timeout: Duration) -> Option<Result<Arc<Connection>, Failure>> {
        connection_of_caller(&self.servers, timeout)
    }
}
