//! Who succeeds a predecessor that held a lock alone, while nobody has claimed the grants that came after it: the first
//! who holds the lock, beside such a grant too. That one learns about the predecessor, which does not come back.

use super::{Asked, Court, Predecessor, Raw, Share, Unclaimed};
use crate::fake::OwnedKeyName;

/// What a key held before a grant; `None`: that is not known.
type Before = Option<Raw>;

fn was_alone(before: Option<&Raw>) -> bool {
    matches!(before, Some(Raw::One(_) | Raw::Number(_)))
}

impl Unclaimed {
    fn is_of_place(&self, place: &OwnedKeyName) -> bool {
        self.attempt.asked.share != Share::Alone && self.attempt.asked.places.contains(place)
    }

    fn known_before(&self, place: &OwnedKeyName) -> Before {
        self.before.iter().find(|(of, _)| of == place).and_then(|(_, before)| before.clone())
    }

    /// Whether the next who holds the lock may be the first.
    fn is_open(&self, place: &OwnedKeyName) -> bool {
        let before = self.known_before(place);
        self.is_of_place(place) && !self.has_newer_holder && (before.is_none() || was_alone(before.as_ref()))
    }

    fn set_before(&mut self, place: &OwnedKeyName, to: &Before) {
        self.before.iter_mut().filter(|(of, _)| of == place).for_each(|(_, before)| before.clone_from(to));
    }

    /// The value that a key gets back when this grant ends unclaimed.
    pub(super) fn returns(&self, place: &OwnedKeyName) -> Before {
        let before = self.known_before(place);
        if self.has_newer_holder && was_alone(before.as_ref()) {
            return Some(Raw::Nothing);
        }
        before
    }
}

impl Court {
    /// The reply to somebody who holds a key by `token` now, which was `key` before. Returns whether the predecessor
    /// was judged by a grant beside it that nobody has claimed.
    pub(super) fn succeeds_beside(
        &mut self,
        (place, key): (&OwnedKeyName, &Raw),
        (asked, token): (&Asked, u64),
        predecessor: Option<Predecessor>,
    ) -> bool {
        let is_beside = |own: &&mut Unclaimed| own.token < token && own.is_open(place) && own.is_still_in(key);
        let mut beside: Vec<&mut Unclaimed> = self.unclaimed.iter_mut().filter(is_beside).collect();
        match &mut beside[..] {
            [] => false,
            [own] => {
                own.has_newer_holder = true;
                if let Some(before) = own.known_before(place).filter(|_| self.clock_set.is_none()) {
                    before.check_predecessor(asked, predecessor, own.wall);
                }
                true
            }
            // Others have written there.
            several => {
                for own in several {
                    own.forget_before(place);
                }
                true
            }
        }
    }

    /// A grant ends unclaimed: the next one that nobody has claimed succeeds its predecessor. If several are `gone`
    /// at once, their order is not known.
    pub(super) fn inherited(&mut self, ended: &mut Unclaimed, gone: &[u64]) {
        let places = ended.attempt.asked.places.clone();
        for place in &places {
            if !ended.is_open(place) {
                continue;
            }
            let heirs = self.unclaimed.iter_mut().filter(|own| own.token > ended.token && own.is_of_place(place));
            let Some(heir) = heirs.min_by_key(|own| own.token) else { continue };
            let before = ended.known_before(place).filter(|_| !gone.contains(&heir.token));
            if before.is_none() {
                ended.set_before(place, &None);
            }
            let has_room = match heir.known_before(place) {
                Some(Raw::Nothing) => true,
                Some(Raw::Several(holders)) => holders.iter().all(|holder| holder.timestamp > heir.wall),
                _ => false,
            };
            if has_room {
                heir.set_before(place, &before);
            } else if !was_alone(heir.known_before(place).as_ref()) {
                heir.set_before(place, &None);
            }
            ended.has_newer_holder |= before.is_some();
        }
    }

    /// Whether `token` may be back in a key, from which the unclaimed or undelivered grant `ended` goes.
    pub(super) fn may_come_back(&self, place: &OwnedKeyName, ended: u64, token: u64, left: &Raw) -> bool {
        let lost = self.lost.iter().find(|lost| lost.token == ended && lost.place == *place);
        let unclaimed = || self.unclaimed.iter().find(|own| own.token == ended);
        let before = match lost {
            Some(lost) => lost.before.clone(),
            None => unclaimed().and_then(|own| own.returns(place)),
        };
        match before {
            None => true,
            Some(Raw::Nothing | Raw::Foreign) => false,
            Some(Raw::One(holder)) => holder.token == token && left.holders().is_empty(),
            // It had no token, and has that of the grant.
            Some(Raw::Number(_)) => token == ended && left.holders().is_empty(),
            Some(Raw::Several(holders)) => holders.iter().any(|holder| holder.token == token),
        }
    }
}
