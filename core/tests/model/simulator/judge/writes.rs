//! Checks each change to a key against the contract: a grant ends through its holder, a successor, or its retention; a
//! lease changes through its holder or the end of its connection.

use super::{Cause, Changed, Court, Found, Now, Raw, Writes};
use redis_lock_core::lock::retention::Retention;

fn ceil_ms(us: u64) -> u64 {
    us.div_ceil(1_000)
}

impl Court {
    #[allow(clippy::too_many_lines, reason = "each kind of write is judged in its own way")]
    pub(super) fn judge_write(&mut self, writes: &mut Writes, changed: &Changed, cause: &Cause, now: Now) {
        let Changed { place, before, after, .. } = changed;
        let context = || format!("{place:?}: {before:?} became {after:?} at {now:?} by {cause:?}");
        let (old, new) = (Raw::of(before.as_ref(), now.wall), Raw::of(after.as_ref(), now.wall));
        let lost: Vec<u64> = old.holders().iter().map(|holder| holder.token).collect();
        let lost: Vec<u64> = lost
            .into_iter()
            .filter(|token| self.is_lost(*token, place, &old) || self.is_released(*token, cause, place, &old))
            .collect();
        let is_lost = |token: u64| lost.contains(&token);
        // A predecessor without a token is restored with the grant's token.
        let is_given_up = |token: u64| {
            let grant = (token, place.clone());
            cause.ended.contains(&grant) && !writes.restored.contains(&grant)
        };
        let given_up = |token: u64| is_given_up(token) || is_lost(token);
        let left = old.without(given_up);
        // A restored predecessor is older than the grant that nobody received.
        let is_restored = |token: u64| {
            let mut ended = old.holders().iter().map(|holder| holder.token).filter(|token| is_lost(*token));
            ended.any(|ended| token <= ended && self.may_come_back(place, ended, token))
        };
        let come: Vec<u64> = new.holders().iter().map(|holder| holder.token).collect();
        let come: Vec<u64> =
            come.into_iter().filter(|token| old.holder(*token).is_none() && !is_restored(*token)).collect();
        assert!(come.len() <= 1, "{}", context());

        // Grants that are gone although nobody gave them up must have ended.
        let stays_until = |timestamp: u64| match (now.retention, &old) {
            (Retention::Ms(ms), _) => ceil_ms(timestamp) + ms,
            (Retention::Forever, Raw::Several(_)) => ceil_ms(timestamp) + 60_000,
            (Retention::Forever, _) => u64::MAX,
        };
        let gone: Vec<_> = left.holders().iter().filter(|holder| new.holder(holder.token).is_none()).collect();
        for holder in &gone {
            let session =
                self.ended_sessions.get(&(holder.token, place.clone())).map_or(u64::MAX, |at| at + now.margin);
            let end = session.min(holder.timestamp);
            assert!(end <= now.wall, "{} was held: {}", holder.token, context());
            let is_forgotten = now.wall / 1_000 >= stays_until(end);
            assert!(is_forgotten || !come.is_empty(), "{} could be recovered: {}", holder.token, context());
        }
        if let (Raw::Several(_), Raw::Several(_), [_]) = (&left, &new, &come[..]) {
            let replaced: Vec<_> =
                gone.iter().filter(|holder| now.wall / 1_000 < stays_until(holder.timestamp)).collect();
            let first = left.holders().iter().min_by_key(|holder| (holder.timestamp, holder.token)).unwrap();
            let is_first = replaced.iter().all(|holder| holder.timestamp == first.timestamp);
            assert!(replaced.len() <= 1 && is_first, "another holder is replaced: {}", context());
        }
        let is_others = matches!(old, Raw::Foreign) || (matches!(old, Raw::Number(_)) && !old.is_expired(now.wall));
        assert!(!is_others, "a value that is not ours was changed: {}", context());

        // If a successor does not receive its grant, its predecessor comes back, and may still end with its connection.
        for holder in old.holders().iter().filter(|holder| new.holder(holder.token).is_none()) {
            if let Some((_, is_sure)) = self.sessions.get_mut(&(holder.token, place.clone())) {
                *is_sure = false;
            }
        }
        for holder in new.holders() {
            let Some(earlier) = old.holder(holder.token) else { continue };
            // It is the predecessor without a token.
            if is_lost(holder.token) && (holder.timestamp <= now.wall || self.clock_set.is_some()) {
                assert!(
                    holder.timestamp == earlier.timestamp || self.may_come_back(place, holder.token, holder.token),
                    "a predecessor comes back: {}",
                    context()
                );
                writes.restored.push((holder.token, place.clone()));
                continue;
            }
            // A claim's write is judged by its reply.
            if cause.granted == Some(holder.token) && self.is_unclaimed(holder.token, place) {
                assert_eq!((earlier.id, holder.id), (None, cause.asks), "{}", context());
                continue;
            }
            assert_eq!(holder.id, earlier.id, "{}", context());
            if holder.timestamp == earlier.timestamp {
                continue;
            }
            let is_extended = cause.extended == Some(holder.token);
            // If a grant with a waiter's ID gets into the key, that waiter gets the grant.
            let waits = || {
                self.queue.iter().any(|attempt| {
                    attempt.waits && attempt.asked.id == holder.id && attempt.asked.places.contains(place)
                })
            };
            let is_asked_again =
                holder.id.is_some() && holder.timestamp > earlier.timestamp && (cause.asks == holder.id || waits());
            let ended = self.ended_sessions.get(&(holder.token, place.clone())).map(|at| at + now.margin);
            let ends_with_session = ended.is_some_and(|end| holder.timestamp == end.min(earlier.timestamp));
            assert!(
                is_extended || is_asked_again || ends_with_session,
                "the lease of {} changed: {}",
                holder.token,
                context()
            );
            if is_extended || is_asked_again {
                writes.extended.push((holder.token, place.clone(), earlier.timestamp, holder.timestamp));
            }
        }

        // With a single holder, the predecessor of an unclaimed grant's successor is known.
        let is_alone = |raw: &Raw| matches!(raw, Raw::Nothing | Raw::One(_) | Raw::Number(_));
        // It is not known if others have come to hold the lock beside that grant.
        let succeeds = self.before_lost(cause, place, &old, now).filter(|_| left.holders().is_empty());
        let succeeds = succeeds.filter(|before| is_alone(before) && is_alone(&new));

        let last = new.last_end();
        let expires_at = |retention| match retention {
            Retention::Forever => None,
            Retention::Ms(ms) => Some(ceil_ms(last) + ms),
        };
        // A grant that has to be claimed has no ID yet. Its key stays for at least a minute, even if others end later.
        let is_unclaimed = |token: u64| {
            let is_new = come.contains(&token) && cause.granted != Some(token);
            is_new || self.is_unclaimed(token, place)
        };
        let may_be_unclaimed = new.holders().iter().any(|holder| holder.id.is_none() && is_unclaimed(holder.token));
        let of_unclaimed = Some(expires_at(now.retention.unclaimed())).filter(|_| may_be_unclaimed);
        // A set's expiry changes with the millisecond in which its last holder ends. A claim may leave it unchanged.
        let ends_as_before = ceil_ms(old.last_end()) == ceil_ms(last);
        let same = before.as_ref().filter(|_| matches!(new, Raw::Several(_)) && ends_as_before);
        let as_before = same.map(|stored| stored.expire_at_ms);
        if let (Some(stored), false) = (after, new.holders().is_empty()) {
            let expected = [Some(expires_at(now.retention)), of_unclaimed, as_before];
            assert!(expected.contains(&Some(stored.expire_at_ms)), "the native expiry: {}", context());
        }
        writes.found.extend(come.iter().map(|token| Found {
            token: *token,
            place: place.clone(),
            before: left.clone(),
            after: new.clone(),
            passed_on: old.holders().iter().any(|holder| is_lost(holder.token)),
            succeeds: succeeds.clone(),
        }));
    }

    /// Checks the leases of a grant that was resent to its ID, or extended.
    pub fn check_extension(writes: &Writes, token: u64, lease: u64, may_be_shorter: bool, now: Now) {
        for (own, place, before, after) in &writes.extended {
            let wanted = now.wall + lease + now.margin;
            let expected = if may_be_shorter { wanted } else { wanted.max(*before) };
            assert_eq!((*own, *after), (token, expected), "the lease in {place:?} at {now:?}");
        }
    }
}
