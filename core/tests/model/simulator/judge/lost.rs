//! Grants that nobody received or claimed: they pass on, and their predecessors come back.

use super::{Cause, Court, Now, Raw, Unclaimed};
use crate::fake::OwnedKeyName;

/// A grant that passes on, if its whole value is still as it was written.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub token: u64,
    pub place: OwnedKeyName,
    pub timestamp: u64,
    /// Until when it could be claimed.
    pub deadline: u64,
    pub id: Option<u64>,
    /// What the key held before a grant that was not claimed.
    pub before: Option<Raw>,
    pub is_unclaimed: bool,
    /// It passes on soon, unless others have changed its key.
    pub passes_on: bool,
    /// It was not claimed; others may have changed the key since.
    pub was_unclaimed: bool,
}

impl Lost {
    /// It may stay as it is.
    pub fn stays(&mut self) {
        (self.is_unclaimed, self.passes_on) = (false, false);
    }

    pub fn is_still_in(&self, key: &Raw) -> bool {
        key.holder(self.token).is_some_and(|holder| (holder.timestamp, holder.id) == (self.timestamp, self.id))
    }
}

impl Court {
    pub(super) fn is_lost(&self, token: u64, place: &OwnedKeyName, key: &Raw) -> bool {
        self.lost.iter().any(|lost| lost.token == token && lost.place == *place && lost.is_still_in(key))
    }

    /// The value of a key before a grant that was not claimed, and ends now.
    pub(super) fn before_lost(&self, cause: &Cause, place: &OwnedKeyName, key: &Raw, now: Now) -> Option<Raw> {
        let lost = self.lost.iter().find(|lost| lost.place == *place && lost.is_still_in(key));
        if let Some(lost) = lost {
            // One that has expired may be named as a predecessor like any other.
            return lost.before.clone().filter(|_| lost.timestamp > now.wall);
        }
        let own = self.unclaimed.iter().find(|own| self.is_released(own.token, cause, place, key))?;
        own.returns(place)
    }

    /// Whether a key of an unclaimed grant is released by its token.
    pub(super) fn is_released(&self, token: u64, cause: &Cause, place: &OwnedKeyName, key: &Raw) -> bool {
        let is_it = |own: &Unclaimed| own.token == token && own.is_still_in(key);
        cause.ended.contains(&(token, place.clone())) && self.unclaimed.iter().any(is_it)
    }

    /// Whether nobody holds a key by that token, because its attempt never claimed it; `None`: that is not certain.
    pub fn was_never_claimed(&self, token: u64, place: &OwnedKeyName, key: &Raw) -> Option<bool> {
        let lost = self.lost.iter().filter(|lost| lost.was_unclaimed && lost.token == token && lost.place == *place);
        // A predecessor that had no token is back with the token of the grant, and is live if the clock was set back.
        let had_no_token = |lost: &Lost| !lost.is_still_in(key) && matches!(lost.before, Some(Raw::Number(_)) | None);
        if self.clock_set.is_some() && key.holder(token).is_some() && lost.clone().any(had_no_token) {
            return None;
        }
        let sure = lost.filter(|lost| lost.is_still_in(key)).map(|lost| lost.is_unclaimed).max();
        match sure {
            _ if self.is_unclaimed(token, place) => Some(true),
            Some(false) => None,
            sure => Some(sure.is_some()),
        }
    }
}
