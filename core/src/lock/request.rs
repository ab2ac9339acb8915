//! What a caller asks for, and on which terms.

use super::error::Error;
use super::holders;
use super::record::{Id, Owner};
use super::time::{Micros, UnixMicros};

/// Settings that the rules need.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How much longer than the lease contenders wait: the documented "+ 1".
    pub margin: Micros,
}

impl Terms {
    /// `now + lease + margin`: when a lock stops being valid that is granted now.
    ///
    /// # Errors
    /// [`Error::Clock`]: there is no such time.
    pub(super) fn timestamp(self, now: UnixMicros, lease: Micros) -> Result<UnixMicros, Error> {
        if !now.is_plausible() {
            return Err(Error::Clock);
        }
        Ok(now.after(lease).after(self.margin))
    }
}

/// With how many others a caller would share the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// With nobody.
    #[default]
    Alone,
    /// With all who share it too.
    Shared,
    /// So that at most so many hold it.
    Limit(u64),
}

impl Share {
    /// The largest number of a `LIMIT`; `SHARED` is the same as this one.
    pub const MOST: u64 = holders::MOST as u64;

    /// How many may hold it, the caller among them.
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
    /// With how many others.
    pub share: Share,
    /// How long the grant is to be good.
    pub lease: Micros,
    /// The attempt.
    pub id: Option<Id>,
    /// A label.
    pub owner: Option<Owner<'a>>,
}
