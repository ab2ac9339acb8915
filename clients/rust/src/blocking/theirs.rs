//! The way to the servers by a closure of the application. What it uses cannot be closed from here, so it runs on a thread
//! of its own, and a reply that is late is awaited.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use super::lane::line_of_caller;
use crate::judge::{Call, Fault, read};
use crate::line::Line;
use crate::server::{Server, Servers};
use crate::timer::in_time;

/// What makes a call.
type Run = Arc<dyn Fn(&Cmd) -> RedisResult<Value> + Send + Sync>;

pub(crate) struct Theirs {
    servers: Servers,
    run: Run,
}

impl Theirs {
    pub(crate) fn new(servers: Servers, run: impl Fn(&Cmd) -> RedisResult<Value> + Send + Sync + 'static) -> Self {
        Self { servers, run: Arc::new(run) }
    }
}

impl Server for Theirs {
    fn call(&self, cmd: Cmd, _: bool, timeout: Duration) -> Call {
        let run = Arc::clone(&self.run);
        let call = async move {
            let done = tokio::task::spawn_blocking(move || read(run(&cmd))).await;
            done.unwrap_or_else(|_| Err(Fault::broken("the closure panicked, or the runtime is ending")))
        };
        in_time(Box::pin(call), timeout)
    }

    fn narrow(&self, _: Box<dyn FnOnce() + Send>) -> bool {
        true
    }

    fn widen(&self) {}

    fn line(&self, timeout: Duration) -> Option<Result<Arc<Line>, Fault>> {
        line_of_caller(&self.servers, timeout)
    }
}
