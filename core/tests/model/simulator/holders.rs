//! Commands of holders and of clients that cancel an attempt. Each extension, release and check is compared with the
//! keys as they were before it.

use super::*;

/// Which locks of a grant are extended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extends {
    /// The first of its locks, with EXTEND.
    First,
    /// All of them and another key, with MEXTEND.
    AllAnd(Option<Number>),
}

impl Run {
    /// A grant that somebody remembers, with the server that its holder asks: its own or the newest master. `None` if
    /// that server takes no commands for its keys.
    fn known_grant(&mut self, grant: Number) -> Option<Known> {
        let at = self.known.len().checked_sub(1 + usize::from(grant) % REMEMBERED)?;
        let mut known = self.known[at].clone();
        // Some holders go to a new master at once, and the others stay with their old one as long as it answers.
        if self.plan == Plan::Group && (grant % 2 == 1 || !self.takes_writes(known.site)) {
            known.site = self.newest();
        }
        let takes = self.takes_writes(known.site);
        (takes && !self.is_lost(known.site, &known.places)).then_some(known)
    }

    pub(super) fn extend(&mut self, grant: Number, what: Extends, lease: Ms) {
        let Some(mut known) = self.known_grant(grant) else { return };
        match what {
            Extends::First => known.places.truncate(1),
            Extends::AllAnd(more) => Self::add(&mut known.places, more),
        }
        let all = what != Extends::First;
        let (site, wall) = (known.site, self.now_at(known.site).wall);
        if self.is_lost(site, &known.places) {
            return;
        }
        let is_held = known
            .places
            .iter()
            .all(|place| self.raw(site, place).holder(known.token).is_some_and(|holder| holder.timestamp > wall));
        let was_never_claimed = known
            .places
            .iter()
            .map(|place| self.courts[site].was_never_claimed(known.token, place, &self.raw(site, place)));
        let was_never_claimed: Vec<Option<bool>> = was_never_claimed.collect();
        let is_held = is_held && !was_never_claimed.contains(&Some(true));
        let is_sure = !is_held || !was_never_claimed.contains(&None);
        let token = Token::new(known.token).unwrap();
        let names: Vec<&[u8]> = known.places.iter().map(|place| &place.1[..]).collect();
        let lease = us(lease);
        let outcome = self.sites[site].node.command(0, |entry| {
            if all {
                entry.extend_all(&names, token, Micros(lease))
            } else {
                entry.extend(names[0], token, Micros(lease))
            }
        });
        let cause = Cause { extended: Some(known.token), ..Cause::default() };
        let writes = self.after(site, &cause);
        Court::assert_everything_was_reported(&writes);
        let now = self.now_at(site);
        match outcome {
            Ok(extended) => {
                assert!(extended || writes.is_empty(), "EXTEND reports that it has done nothing, but it has written");
                assert!(!is_sure || extended == is_held, "EXTEND of {} in {:?} at {now:?}", known.token, known.places);
                if extended {
                    assert!(now.longest_lease.is_none_or(|longest| lease <= longest), "a lease beyond the grace");
                    self.courts[site].extended(known.token, &known.places);
                    Court::check_extension(&writes, known.token, lease, true, now);
                    for place in &known.places {
                        let end = self.raw(site, place).holder(known.token).map(|holder| holder.timestamp);
                        assert_eq!(
                            end,
                            Some(now.wall + lease + now.margin),
                            "the lease of {} in {place:?}",
                            known.token
                        );
                    }
                    self.prolong(site, known.token, &known.places, lease, true);
                }
            }
            Err(Error::NoReplicas | Error::LeaseBeyondGrace(_)) => {
                assert!(now.longest_lease.is_some(), "there is no grace");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn add(places: &mut Vec<OwnedKeyName>, more: Option<Number>) {
        let more = more.map(place);
        places.extend(more.filter(|more| !places.contains(more)));
    }

    /// `shares`: with a result.
    pub(super) fn release(&mut self, grant: Number, key: Number, shares: bool) {
        let Some(known) = self.known_grant(grant) else { return };
        let at = usize::from(key) % known.places.len();
        // No seed draws 15; hand-written steps use it to name a key other than the grant's own.
        let place = if key % 16 == 15 { place(key) } else { known.places[at].clone() };
        if self.is_lost(known.site, std::slice::from_ref(&place)) {
            return;
        }
        let site = known.site;
        let (before, wall) = (self.raw(site, &place), self.now_at(site).wall);
        let value = self.tally.steps;
        let is_live = before.holder(known.token).is_some_and(|holder| holder.timestamp > wall);
        let was_never_claimed = self.courts[site].was_never_claimed(known.token, &place, &before);
        // Whether such a grant gives a result is left open.
        let shares = shares && was_never_claimed.is_some();
        let may_share = shares && is_live && was_never_claimed == Some(false);
        let is_full = self.sites[site].node.world.borrow().is_out_of_memory;
        let leaves = |attempt: &Attempt| may_share && attempt.leaves_with_result(&place, is_full);
        let next = self.next_alone(site, &place, &before.without(|token| token == known.token), wall, leaves);
        // In a set, its predecessor is put back first.
        let is_unclaimed = was_never_claimed != Some(false);
        let next = next.filter(|_| !is_unclaimed || matches!(before, Raw::One(_)));
        let token = Token::new(known.token).unwrap();
        let is_multi = std::mem::take(&mut self.is_multi);
        self.sites[site].node.world.borrow_mut().is_transaction = is_multi;
        let bytes = shares.then(|| value.to_be_bytes());
        let result = bytes.as_ref().map(<[u8; 8]>::as_slice);
        let released = self.sites[site].node.command(0, |entry| entry.release_with(&place.1, token, result));
        if released == Err(Error::ResultOfSeveral) {
            self.sites[site].node.world.borrow_mut().is_transaction = false;
            assert!(shares && matches!(before, Raw::Several(_)), "RELEASE with a result in {before:?}");
            let writes = self.after(site, &Cause::default());
            Court::assert_everything_was_reported(&writes);
            return;
        }
        let released = released.unwrap();
        if may_share && released == Release::InTime {
            let now = self.now_at(site);
            self.courts[site].shared(&place, value, is_full, now);
        }
        self.spans.ended(known.token);
        let cause = Cause { ended: vec![(known.token, place.clone())], ..Cause::default() };
        let writes = self.after(site, &cause);
        self.sites[site].node.world.borrow_mut().is_transaction = false;
        Court::assert_everything_was_reported(&writes);
        let expected = match before.holder(known.token) {
            None => Release::Over,
            Some(holder) if holder.timestamp <= wall => Release::Late,
            Some(_) => Release::InTime,
        };
        assert_eq!(released, expected, "RELEASE of {} in {place:?}, {before:?}", known.token);
        if released == Release::Late {
            self.courts[site].released_late(known.token, &place);
        }
        if expected != Release::Over {
            // A predecessor without a token is restored with the grant's token.
            let is_left = self.raw(site, &place).holder(known.token).is_some_and(|holder| holder.timestamp > wall);
            // It may be live again if the clock was set back.
            let may_be_left = is_unclaimed && self.courts[site].clock_set.is_some();
            assert!(!is_left || may_be_left, "{} is released, but holds {place:?}", known.token);
            if let Some(next) = next.filter(|_| self.may_hand_off(site)) {
                let is_next = |attempt: &&Attempt| attempt.waits && (attempt.earliest, attempt.latest) == next;
                let waits = self.courts[site].queue.iter().filter(is_next);
                let waits = waits.filter(|attempt| attempt.asked.places == [place.clone()]).count();
                assert_eq!(waits, 0, "RELEASE of {place:?} does not pass the lock on to {next:?}");
            }
        }
    }

    /// The earliest and the latest arrival of the client that is certain to be first in the queue for a key, wants no
    /// other keys, and can have it.
    fn next_alone(
        &self,
        site: usize,
        place: &OwnedKeyName,
        left: &Raw,
        wall: u64,
        leaves: impl Fn(&Attempt) -> bool,
    ) -> Option<(u64, u64)> {
        let monotonic = Site::monotonic(self.now);
        let waiting = self.courts[site].queue.iter().filter(|attempt| {
            attempt.waits && attempt.shares_key_with(std::slice::from_ref(place)) && !leaves(attempt)
        });
        let first = waiting.clone().min_by_key(|attempt| attempt.latest)?;
        let is_sure = waiting.clone().all(|attempt| std::ptr::eq(attempt, first) || attempt.earliest > first.latest);
        let fits = first.asked.places.len() == 1 && left.admits(first.asked.share.most(), wall);
        let holds = left.is_held_by(first.asked.id, wall);
        let has_memory = first.asked.notify.is_none() || monotonic >= self.courts[site].no_memory_until;
        (is_sure && fits && has_memory && !holds && !self.is_unsure(site, std::slice::from_ref(place)))
            .then_some((first.earliest, first.latest))
    }

    fn may_hand_off(&self, site: usize) -> bool {
        let now = self.now_at(site);
        let court = &self.courts[site];
        now.monotonic >= court.all_excused && now.longest_lease.is_none()
    }

    pub(super) fn release_all(&mut self, grant: Number, more: Option<Number>) {
        let Some(mut known) = self.known_grant(grant) else { return };
        Self::add(&mut known.places, more);
        let site = known.site;
        if self.is_lost(site, &known.places) {
            return;
        }
        let held = known.places.iter().filter(|place| self.raw(site, place).holder(known.token).is_some()).count();
        // An unclaimed grant's predecessor is restored. If it had no token, it has the grant's, and may be live again
        // if the clock was set back.
        let court = &self.courts[site];
        let is_unclaimed =
            |place: &OwnedKeyName| court.was_never_claimed(known.token, place, &self.raw(site, place)) != Some(false);
        let may_be_left: Vec<OwnedKeyName> =
            known.places.iter().filter(|place| court.clock_set.is_some() && is_unclaimed(place)).cloned().collect();
        let names: Vec<&[u8]> = known.places.iter().map(|place| &place.1[..]).collect();
        let token = Token::new(known.token).unwrap();
        let released = self.sites[site].node.command(0, |entry| entry.release_all(&names, token)).unwrap();
        self.spans.ended(known.token);
        let ended = known.places.iter().map(|place| (known.token, place.clone())).collect();
        let cause = Cause { ended, ..Cause::default() };
        let writes = self.after(site, &cause);
        Court::assert_everything_was_reported(&writes);
        assert_eq!(released, held, "MRELEASE of {} in {:?}", known.token, known.places);
        let wall = self.now_at(site).wall;
        let is_held = |place: &&OwnedKeyName| {
            self.raw(site, place).holder(known.token).is_some_and(|holder| holder.timestamp > wall)
        };
        let left = known.places.iter().filter(|place| !may_be_left.contains(place)).find(is_held);
        assert_eq!(left, None, "{} is released", known.token);
    }

    pub(super) fn check(&mut self, grant: Number) {
        let Some(known) = self.known_grant(grant) else { return };
        let (site, now) = (known.site, self.now_at(known.site));
        let token = Token::new(known.token).unwrap();
        for place in &known.places {
            let raw = self.raw(site, place);
            let was_never_claimed = self.courts[site].was_never_claimed(known.token, place, &raw);
            let end = raw.holder(known.token).map_or(0, |holder| holder.timestamp);
            let end = if was_never_claimed == Some(true) { 0 } else { end };
            let left = self.sites[site].node.command(0, |entry| entry.check(&place.1, token)).unwrap();
            let is_open = was_never_claimed.is_none() && left.0 == 0;
            let is_right = is_open || left.0 == end.saturating_sub(now.wall + now.margin);
            assert!(is_right, "CHECK of {} in {place:?}: {left:?}", known.token);
        }
        self.after(site, &Cause::default());
    }

    pub(super) fn cancel(&mut self, key: Number, id: Number) {
        let (place, id) = (place(key), 1 + u64::from(id % IDS));
        let site = self.newest();
        if !self.takes_writes(site) || self.is_lost(site, std::slice::from_ref(&place)) {
            return;
        }
        let (before, now) = (self.raw(site, &place), self.now_at(site));
        // There are two only after the clock was set back, and then one of them ends.
        let own = before.holders().iter().filter(|holder| holder.id == Some(id) && holder.timestamp > now.wall);
        let own: Vec<u64> = own.map(|holder| holder.token).collect();
        let court = &self.courts[site];
        let before = court.attempt(&place, id).map(|attempt| (attempt.waits, attempt.until));
        let is_own = |own: &&Unclaimed| own.attempt.asked.id == Some(id) && own.attempt.asked.places.contains(&place);
        let before = court.unclaimed.iter().find(is_own).map(|own| (true, own.deadline)).or(before);
        let was_there = self.sites[site].node.command(0, |entry| entry.cancel(&place.1, id_of(id))).unwrap();
        for own in &own {
            self.spans.ended(*own);
        }
        let ended = own.iter().map(|own| (*own, place.clone())).collect();
        let cause = Cause { ended, cancels: Some(id), at: Some(place.clone()), ..Cause::default() };
        let writes = self.after(site, &cause);
        Court::assert_everything_was_reported(&writes);
        self.courts[site].cancelled(&place, id, &cause.ended, now);
        if !own.is_empty() {
            assert!(was_there, "CANCEL of {id}, which holds {place:?}");
        } else if let Some((true, _)) = before {
            assert!(was_there, "CANCEL of {id}, which waits for {place:?}");
        } else if before.is_none() {
            assert!(!was_there, "CANCEL of {id}, which neither holds {place:?} nor waits for it");
        }
        if was_there && own.len() < 2 {
            let holds = self.raw(site, &place).is_held_by(Some(id), now.wall);
            let waits = self.courts[site].attempt(&place, id).is_some();
            assert!(!holds && !waits, "{id} is cancelled");
        }
    }
}
