//! Grants that nobody received or claimed: they are passed on, and their predecessors come back.

use super::{Cause, Court, Now, Raw, Share, Unclaimed};
use crate::fake::OwnedKeyName;
use crate::simulator::raw::Holder;

/// A grant that is passed on if its whole value is unchanged.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub token: u64,
    pub place: OwnedKeyName,
    pub timestamp: u64,
    /// The deadline for claiming it.
    pub deadline: u64,
    pub id: Option<u64>,
    /// What the key held before an unclaimed grant.
    pub before: Option<Raw>,
    /// Whether others could join it: a holder that was alone before comes back with the grant's token instead of its
    /// own.
    pub has_company: bool,
    pub is_unclaimed: bool,
    /// Whether it is passed on soon, unless others have changed its key.
    pub passes_on: bool,
    /// Whether it was not claimed; others may have changed the key since then.
    pub was_unclaimed: bool,
}

impl Lost {
    /// Notes that it may stay unchanged.
    pub fn stays(&mut self) {
        (self.is_unclaimed, self.passes_on) = (false, false);
    }

    pub fn is_still_in(&self, key: &Raw) -> bool {
        key.holder(self.token).is_some_and(|holder| (holder.timestamp, holder.id) == (self.timestamp, self.id))
    }
}

impl Lost {
    fn comes_back(&self) -> Option<Raw> {
        comes_back(self.before.clone(), self.token, self.has_company)
    }

    fn comes_back_without_token(&self) -> bool {
        self.comes_back().is_none_or(|raw| matches!(raw, Raw::Number(_)) || raw.holder(self.token).is_some())
    }
}

impl Unclaimed {
    pub(super) fn known_before(&self, place: &OwnedKeyName) -> Option<Raw> {
        self.before.iter().find(|(of, _)| of == place).and_then(|(_, before)| before.clone())
    }

    fn comes_back(&self, place: &OwnedKeyName) -> Option<Raw> {
        comes_back(self.known_before(place), self.token, self.has_company())
    }

    pub(super) fn has_company(&self) -> bool {
        self.attempt.asked.share != Share::Alone
    }
}

/// The value that comes back when the grant with this token ends. If others could join it, a holder that was alone
/// before gets this token.
fn comes_back(before: Option<Raw>, token: u64, has_company: bool) -> Option<Raw> {
    match before {
        Some(Raw::One(holder)) if has_company => Some(Raw::One(Holder { token, ..holder })),
        before => before,
    }
}

impl Court {
    /// Whether `token` may be back in a key after the unclaimed or undelivered grant `ended` was removed from it.
    pub(super) fn may_come_back(&self, place: &OwnedKeyName, ended: u64, token: u64) -> bool {
        let lost = self.lost.iter().find(|lost| lost.token == ended && lost.place == *place);
        let unclaimed = self.unclaimed.iter().find(|own| own.token == ended);
        let back = match (lost, unclaimed) {
            (Some(lost), _) => lost.comes_back(),
            (None, Some(own)) => own.comes_back(place),
            (None, None) => return true,
        };
        // A predecessor without a token of its own has the grant's.
        back.is_none_or(|raw| raw.holder(token).is_some() || (matches!(raw, Raw::Number(_)) && token == ended))
    }

    pub(super) fn is_lost(&self, token: u64, place: &OwnedKeyName, key: &Raw) -> bool {
        self.lost.iter().any(|lost| lost.token == token && lost.place == *place && lost.is_still_in(key))
    }

    /// The value of a key before an unclaimed grant that ends now.
    pub(super) fn before_lost(&self, cause: &Cause, place: &OwnedKeyName, key: &Raw, now: Now) -> Option<Raw> {
        let lost = self.lost.iter().find(|lost| lost.place == *place && lost.is_still_in(key));
        if let Some(lost) = lost {
            // An expired grant may be named as a predecessor like any other.
            return lost.comes_back().filter(|_| lost.timestamp > now.wall);
        }
        let own = self.unclaimed.iter().find(|own| self.is_released(own.token, cause, place, key))?;
        own.comes_back(place)
    }

    /// Whether a key of an unclaimed grant is released with its token.
    pub(super) fn is_released(&self, token: u64, cause: &Cause, place: &OwnedKeyName, key: &Raw) -> bool {
        let is_it = |own: &Unclaimed| own.token == token && own.is_still_in(key);
        cause.ended.contains(&(token, place.clone())) && self.unclaimed.iter().any(is_it)
    }

    /// Whether nobody holds a key with this token because its attempt never claimed it; `None` if uncertain.
    pub fn was_never_claimed(&self, token: u64, place: &OwnedKeyName, key: &Raw) -> Option<bool> {
        let lost = self.lost.iter().filter(|lost| lost.was_unclaimed && lost.token == token && lost.place == *place);
        // A predecessor without a token is restored with the grant's token, and is live if the clock was set back.
        let had_no_token = |lost: &Lost| !lost.is_still_in(key) && lost.comes_back_without_token();
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
