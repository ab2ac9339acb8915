//! The one error type. Each error has a kind, and names its lock.

use std::fmt;
use std::sync::Arc;

use redis::RedisError;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Somebody else has the lock, or an operator cancelled the wait.
    Refused,
    /// Somebody else still had the lock when the wait ended, or the server was changing all that time.
    Timeout,
    /// The lock is not held any more, or not for certain.
    Lost,
    /// The wait would close a circle of clients that wait for each other's session locks.
    Deadlock,
    /// The server grants nothing now, or not this (GRACE, NOREPLICAS, BUSYLOCKS, CLOCK, OOM), or it lacks the module.
    Unavailable,
    /// The server does not allow this user the command, the key or the connection.
    Denied,
    /// No connection to a server, or no reply in time.
    NoServer,
    /// An argument is wrong, or the key holds something that is no lock.
    Argument,
    /// The same lock again within its own scope, or closed locks.
    Misuse,
    /// The caller has given the attempt up.
    Cancelled,
}

/// The error of all functions of this crate.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    key: Arc<str>,
    reason: Box<str>,
    cause: Option<Arc<RedisError>>,
}

impl Error {
    pub(crate) fn new(kind: Kind, key: &Arc<str>, reason: impl Into<String>) -> Self {
        Self { kind, key: Arc::clone(key), reason: reason.into().into_boxed_str(), cause: None }
    }

    pub(crate) fn because(mut self, cause: Option<Arc<RedisError>>) -> Self {
        self.cause = cause;
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The key of the lock, or its keys, quoted.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether somebody else has the lock: [`Kind::Refused`] or [`Kind::Timeout`].
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.kind, Kind::Refused | Kind::Timeout)
    }

    /// Whether the lock is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.kind == Kind::Lost
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the lock {}: {}", self.key, self.reason)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
