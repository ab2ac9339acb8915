//! How an application follows an attempt and its hold, for instrumentation.

use std::time::Duration;

use crate::error::Error;

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It was released in time.
    Released,
    /// It was lost, or its release found that the grant had ended before.
    Lost,
    /// It ended without a release, because the runtime or the manager ended first.
    Expired,
}

impl End {
    /// A stable word for logs and metrics: `released`, `lost` or `expired`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Expired => "expired",
        }
    }
}

/// Follows one attempt and the lock that it gets: see [`Hooks::began`](crate::Hooks::began). One of `granted`, `failed`
/// and `result` is called; after `granted`, `ended` is called once. They must not block. A panic in one of them is
/// logged. `command` is the command that asked for the lock, or the function of the script.
///
/// `granted`, `failed` and `result` are called by the thread or task that asks for the lock. If the future of an
/// attempt is dropped, `failed` is called by a task of the runtime, with [`Cancelled`](crate::Kind::Cancelled). `ended`
/// is called anywhere.
#[allow(unused_variables)]
pub trait AttemptWatch: Send + Sync {
    /// The attempt got the lock, with this fencing token.
    fn granted(&self, command: &str, token: i64, waited: Duration) {}

    /// The attempt got nothing. The caller gets the error.
    fn failed(&self, command: &str, waited: Duration, error: &Error) {}

    /// The attempt got another holder's result in place of the lock. The hooks are not called for it.
    fn result(&self, command: &str, waited: Duration) {}

    /// The lock is no longer held. `lost`: why, if it was lost.
    fn ended(&self, end: End, held: Duration, lost: Option<&Error>) {}
}
