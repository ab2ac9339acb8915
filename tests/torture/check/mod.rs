//! Judges histories: by a search for an order of small ones, and by one pass over long ones.

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

/// What was promised and not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Somebody was granted a lock that somebody else surely held.
    TwoHolders,
    /// Somebody was granted a lock beside more others than it bears.
    TooManyHolders,
    /// A lock was gone although it surely was held.
    LostLock,
    /// A lock that was given back stood again.
    RevivedLock,
    /// A lease was extended that nobody was told of.
    LeaseTooLong,
    /// A later grant has no larger token.
    TokenNotLarger,
    /// A wait took longer than it may.
    WaitTooLong,
    /// A wait ended without the lock before its time.
    WaitTooShort,
    /// Somebody was granted a lock before another who stood ahead of it in line.
    Overtaken,
    /// Of two neighbours in line who share the lock one got it, and the other not with it.
    LeftBehind,
    /// Who was refused holds all the same.
    HeldByRefused,
    /// The answer for several keys is none that they could have given together.
    WrongAnswer,
    /// No order of the operations is one of a mutex with leases.
    NoOrder,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub kind: Kind,
    pub key: String,
    /// The moments that it is about.
    pub from: Moment,
    pub until: Moment,
    pub text: String,
}

impl Display for Violation {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: key {}: {}", self.kind, self.key, self.text)
    }
}
