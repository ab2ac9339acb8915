//! A caller's request.

use super::holders;
use super::record::{Id, Owner};
use super::time::Micros;

/// How many others may hold the lock together with the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// Nobody.
    #[default]
    Alone,
    /// All callers that share it too.
    Shared,
    /// This many holders, the caller included.
    Limit(u64),
}

impl Share {
    /// The largest `LIMIT`; `SHARED` means the same.
    pub const MOST: u64 = holders::MOST as u64;

    /// The most holders there may be, the caller included.
    #[must_use]
    pub const fn most(self) -> u64 {
        match self {
            Self::Alone => 1,
            Self::Shared => Self::MOST,
            Self::Limit(most) => most,
        }
    }
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// How many others may hold the lock too.
    pub share: Share,
    pub lease: Micros,
    /// The attempt.
    pub id: Option<Id>,
    /// A label.
    pub owner: Option<Owner<'a>>,
}
