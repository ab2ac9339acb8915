//! The result that a holder releases its lock with, and the results kept for attempts that are not connected.

use super::key_name::KeyName;
use crate::lock::record::Id;
use crate::lock::time::MonotonicMicros;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A holder's result. All attempts that get it share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockResult {
    /// Which result it is: two releases can have equal bytes.
    number: u64,
    /// The key that was released, and its database.
    db: i32,
    name: Rc<[u8]>,
    pub bytes: Box<[u8]>,
    /// The time until which it is kept.
    until: MonotonicMicros,
}

impl LockResult {
    fn size(&self) -> usize {
        self.bytes.len().saturating_add(self.name.len())
    }
}

/// An attempt, and its key's database and name.
type Attempt = (Id, i32, Rc<[u8]>);

/// A kept result, for comparison: its attempt, its bytes, and the time until which it is kept.
#[cfg(feature = "model")]
pub type KeptForm = ((Id, i32, Box<[u8]>), Box<[u8]>, MonotonicMicros);

/// The results for attempts that were notified on a channel or had only a reserved place: their next command gets them,
/// as often as it is sent.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    results: BTreeMap<Attempt, Rc<LockResult>>,
    ends: BTreeSet<(MonotonicMicros, Attempt)>,
    /// How many attempts each result is kept for.
    counts: BTreeMap<u64, usize>,
    /// The size of everything: each result and its key's name once, and each attempt.
    size: usize,
    last: u64,
}

impl Kept {
    /// The most that all kept results may take, in bytes.
    const MOST: usize = 64 << 20;
    /// What an attempt takes besides the result.
    const EACH: usize = 256;

    /// A result of a key, to be kept until `until`.
    pub fn result(&mut self, key: KeyName<'_>, bytes: &[u8], until: MonotonicMicros) -> Rc<LockResult> {
        self.last = self.last.wrapping_add(1);
        Rc::new(LockResult { number: self.last, db: key.db, name: key.name.into(), bytes: bytes.into(), until })
    }

    /// Whether a result can be kept for this many attempts.
    #[must_use]
    pub fn has_room(&self, result: &LockResult, attempts: usize) -> bool {
        let attempts = attempts.saturating_mul(Self::EACH);
        self.size.saturating_add(result.size()).saturating_add(attempts) <= Self::MOST
    }

    /// Keeps a result for an attempt.
    pub fn keep(&mut self, id: Id, result: Rc<LockResult>) {
        let attempt: Attempt = (id, result.db, Rc::clone(&result.name));
        self.forget(&attempt);
        let count = self.counts.entry(result.number).or_default();
        if *count == 0 {
            self.size = self.size.saturating_add(result.size());
        }
        *count = count.saturating_add(1);
        self.size = self.size.saturating_add(Self::EACH);
        self.ends.insert((result.until, attempt.clone()));
        self.results.insert(attempt, result);
    }

    /// The result for an attempt, if its time is not over at `now`.
    #[must_use]
    pub fn get(&self, key: KeyName<'_>, id: Id, now: MonotonicMicros) -> Option<Rc<LockResult>> {
        let result = self.results.get(&(id, key.db, key.name.into()))?;
        (result.until > now).then(|| Rc::clone(result))
    }

    /// Forgets a result whose time is over at `now`. Returns whether there was one.
    pub fn forget_due(&mut self, now: MonotonicMicros) -> bool {
        let due = self.ends.first().filter(|(until, _)| *until <= now).map(|(_, attempt)| attempt.clone());
        due.is_some_and(|attempt| self.forget(&attempt))
    }

    fn forget(&mut self, attempt: &Attempt) -> bool {
        let Some(result) = self.results.remove(attempt) else { return false };
        self.size = self.size.saturating_sub(Self::EACH);
        self.ends.remove(&(result.until, attempt.clone()));
        if let Some(count) = self.counts.get_mut(&result.number) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&result.number);
                self.size = self.size.saturating_sub(result.size());
            }
        }
        true
    }

    /// When the next result is forgotten.
    #[must_use]
    pub fn next_end(&self) -> Option<MonotonicMicros> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Everything that is kept, for comparison.
    #[cfg(feature = "model")]
    #[must_use]
    pub fn canonical(&self) -> Vec<KeptForm> {
        let kept = self.results.iter();
        kept.map(|((id, db, name), result)| ((*id, *db, Box::from(&**name)), result.bytes.clone(), result.until))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOOR: KeyName<'static> = KeyName { db: 0, name: b"door" };

    fn id(number: u64) -> Id {
        Id::parse(number.to_string().as_bytes()).unwrap()
    }

    fn at(us: u64) -> MonotonicMicros {
        MonotonicMicros(us)
    }

    #[test]
    fn a_result_is_counted_once_and_each_of_its_attempts_too() {
        let mut kept = Kept::default();
        let result = kept.result(DOOR, &[7; 1_000], at(2));
        for number in 1..=3 {
            kept.keep(id(number), Rc::clone(&result));
        }
        assert_eq!(kept.size, 1_004 + 3 * Kept::EACH);
        // The same attempt again, with a result of its own.
        let other = kept.result(DOOR, &[8; 10], at(9));
        kept.keep(id(3), other);
        assert_eq!(kept.size, 1_018 + 3 * Kept::EACH);
        assert!(kept.forget_due(at(2)) && kept.forget_due(at(2)));
        assert!(!kept.forget_due(at(2)));
        assert_eq!(kept.size, 14 + Kept::EACH);
        assert!(kept.forget_due(at(9)) && kept.is_empty());
        assert_eq!((kept.size, kept.counts.len(), kept.ends.len()), (0, 0, 0));
    }

    #[test]
    fn a_result_is_there_until_its_time_is_over_and_for_its_attempt_alone() {
        let mut kept = Kept::default();
        let result = kept.result(DOOR, b"42", at(10));
        kept.keep(id(1), Rc::clone(&result));
        assert_eq!(kept.get(DOOR, id(1), at(9)), Some(result));
        assert_eq!(kept.get(DOOR, id(1), at(10)), None);
        assert_eq!(kept.get(DOOR, id(2), at(9)), None);
        assert_eq!(kept.get(KeyName { db: 1, ..DOOR }, id(1), at(9)), None);
        assert_eq!(kept.get(KeyName { name: b"gate", ..DOOR }, id(1), at(9)), None);
    }

    #[test]
    fn results_beyond_64_mb_have_no_room() {
        let mut kept = Kept::default();
        let result = kept.result(DOOR, &vec![0; Kept::MOST - 10 * Kept::EACH - 4], at(1));
        assert!(kept.has_room(&result, 10) && !kept.has_room(&result, 11));
        kept.keep(id(1), Rc::clone(&result));
        let small = kept.result(DOOR, &[0; 9 * Kept::EACH], at(1));
        assert!(!kept.has_room(&small, 0));
    }
}
