//! Judges histories: small ones by searching for an order, long ones in one pass.

pub mod groups;
pub mod holds;
pub mod linear;
pub mod order;
pub mod pass;

#[cfg(test)]
mod several_tests;
#[cfg(test)]
mod tests;

use super::moment::Moment;
use std::fmt::{self, Display, Formatter};

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A client was granted a lock that another client certainly held.
    TwoHolders,
    /// A client was granted a lock that had more holders than the client allows.
    TooManyHolders,
    /// A lock was gone although it was certainly held.
    LostLock,
    /// A released lock was held again.
    RevivedLock,
    /// A lease was extended without a reply that confirms it.
    LeaseTooLong,
    /// The token of a later grant is not larger than an earlier one.
    TokenNotLarger,
    /// A wait took longer than allowed.
    WaitTooLong,
    /// A wait ended too early and without the lock.
    WaitTooShort,
    /// A client was granted a lock before a client that was ahead of it in the queue.
    Overtaken,
    /// Of two neighbours in the queue that share the lock, only one got it.
    LeftBehind,
    /// A client holds the lock although it was refused.
    HeldByRefused,
    /// The keys could not have given this combined reply.
    WrongAnswer,
    /// No order of the operations is possible for a mutex with leases.
    NoOrder,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub kind: Kind,
    pub key: String,
    /// The moments that it concerns.
    pub from: Moment,
    pub until: Moment,
    pub text: String,
}

impl Display for Violation {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: key {}: {}", self.kind, self.key, self.text)
    }
}
