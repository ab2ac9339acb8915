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
    /// Somebody else still had the lock when the wait ended, or the server refused to grant it until then.
    Timeout,
    /// The lock is no longer held, or no longer certain to be held.
    Lost,
    /// The wait would close a cycle of clients that wait for each other's session locks.
    Deadlock,
    /// The server cannot grant this lock now (BUSY, MISCONF, LOADING, READONLY, OOM, NOREPLICAS, GRACE, BUSYLOCKS,
    /// CLOCK and others), or it lacks the module.
    Unavailable,
    /// The server does not allow this user the command, the key or the connection.
    Denied,
    /// No connection to a server, or no reply in time.
    NoServer,
    /// An argument is wrong, or the key holds something other than a lock.
    Argument,
    /// Requesting a lock within its own scope, or using closed locks.
    Misuse,
    /// The caller has given up the attempt.
    Cancelled,
}

impl Kind {
    /// A stable word for logs and metrics: `refused`, `timeout`, `lost`, `deadlock`, `unavailable`, `denied`,
    /// `no_server`, `argument`, `misuse` or `cancelled`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::Deadlock => "deadlock",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::NoServer => "no_server",
            Self::Argument => "argument",
            Self::Misuse => "misuse",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The error type of all of this crate's functions.
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

    /// Takes over another error's cause.
    pub(crate) fn because_of(self, other: Self) -> Self {
        self.because(other.cause)
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

    /// The kind as a stable word: see [`Kind::code`].
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// The lock's key, or its keys, quoted.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether somebody else has the lock: [`Kind::Refused`] or [`Kind::Timeout`].
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.kind, Kind::Refused | Kind::Timeout)
    }

    /// Whether the wait has ended: [`Kind::Timeout`].
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::Timeout
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

/// For functions that return [`std::io::Result`]: the end of a wait is [`TimedOut`](std::io::ErrorKind::TimedOut).
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind;
        let kind = match error.kind {
            Kind::Timeout => ErrorKind::TimedOut,
            Kind::Refused => ErrorKind::WouldBlock,
            Kind::Denied => ErrorKind::PermissionDenied,
            Kind::NoServer => ErrorKind::NotConnected,
            Kind::Argument => ErrorKind::InvalidInput,
            Kind::Deadlock => ErrorKind::Deadlock,
            _ => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_code_and_a_cause_and_becomes_an_io_error() {
        let cause = redis::make_extension_error("BUSY".into(), Some("running a script".into()));
        let error = Error::new(Kind::Timeout, &"\"a\"".into(), "too late").because(Some(Arc::new(cause)));
        let copy = error.clone();
        assert!(copy.is_timeout() && copy.is_refused() && copy.code() == "timeout", "{copy:?}");
        let of_language = std::io::Error::from(copy);
        assert_eq!(of_language.kind(), std::io::ErrorKind::TimedOut);
        let source = std::error::Error::source(&error).and_then(|it| it.downcast_ref::<RedisError>());
        assert_eq!(source.and_then(RedisError::code), Some("BUSY"));
    }
}
