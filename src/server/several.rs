//! Several holders of one lock, in a sorted set: read as a whole while they are few, kept in memory
//! from one command to the next when they are many.
//!
//! What is kept is good as long as the set has as many members and the same last one: the module changes
//! both together. Who else changes a set of holders by hand, but not its length nor its last member, may not
//! be noticed. A replica keeps nothing: there the changes come from the master. What nobody asks for is
//! given up after a minute.

use super::api::api;
use super::context::{Arg, Context, OwnString};
use super::key::Key;
use super::state::{self, State};
use crate::lock::holders::{Holder, Holders};
use crate::lock::record::Record;
use crate::lock::token::Token;
use lru::LruCache;

/// Fewer are read anew each time.
pub const FEW: usize = 2;
/// For so many ticks, of which there are some ten a second, a set is kept that nobody asks for.
const UNUSED: u64 = 600;
/// Such a part of all sets is given up in one tick at most, or so many if that is more.
const PART: usize = 100;
const SOME: usize = 64;

/// Several holders, as they lie in a sorted set.
#[derive(Default)]
pub struct Set {
    /// Who they are.
    pub holders: Holders,
    /// Those whose grants have ended, which are still in the key.
    pub ended: Vec<Holder>,
    /// The server has it in the form for many, in which a change costs O(log n): see [`super::set`].
    pub is_tree: bool,
    /// Database and name of its key, where it was kept.
    place: Option<Box<[u8]>>,
    used: u64,
}

impl Set {
    /// Whether it was kept by an earlier command.
    #[must_use]
    pub const fn was_kept(&self) -> bool {
        self.place.is_some()
    }

    /// A grant ends: the set tells of it as if it had, until it is changed. Whether it was one.
    pub fn end(&mut self, token: Token) -> bool {
        let ended = self.holders.remove(token);
        let is_one = ended.is_some();
        self.ended.extend(ended);
        is_one
    }
}

/// Sets that are kept, those that nobody has asked for longest last. Keys that vanish tell nobody.
#[derive(Default)]
pub struct Kept {
    /// None before the first, since an empty cache has memory of its own.
    sets: Option<LruCache<Box<[u8]>, Box<Set>>>,
    tick: u64,
    /// Where a place is put together.
    place: Vec<u8>,
}

impl Kept {
    /// Gives all up.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives up what nobody has asked for in a while.
    pub fn tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        let Some(sets) = &mut self.sets else { return };
        for _ in 0..(sets.len() / PART).max(SOME) {
            let last = sets.peek_lru();
            if last.is_none_or(|(_, set)| self.tick.wrapping_sub(set.used) < UNUSED) {
                return;
            }
            sets.pop_lru();
        }
    }

    fn set_place(&mut self, db: i32, name: &[u8]) {
        self.place.clear();
        self.place.extend(db.to_ne_bytes());
        self.place.extend(name);
    }

    fn take(&mut self, db: i32, name: &[u8]) -> Option<Box<Set>> {
        if self.sets.as_ref().is_none_or(LruCache::is_empty) {
            return None;
        }
        self.set_place(db, name);
        let (place, mut set) = self.sets.as_mut()?.pop_entry(&*self.place)?;
        set.place = Some(place);
        Some(set)
    }

    fn put(&mut self, place: Box<[u8]>, mut set: Box<Set>) {
        set.used = self.tick;
        self.sets.get_or_insert_with(LruCache::unbounded).put(place, set);
    }
}

/// The holders in an open sorted set; nothing if it is not ours.
pub fn read(key: &Key<'_>) -> Option<Box<Set>> {
    // SAFETY: the handle is open.
    let count = unsafe { (api().value_length)(key.handle) };
    let db = key.context.selected_db();
    let kept = state::with(|state| state.kept.take(db, key.name.as_bytes())).ok().flatten();
    if let Some(kept) = kept.filter(|kept| kept.holders.len() == count && is_current(key, &kept.holders)) {
        return Some(kept);
    }
    let mut set = Box::new(Set::default());
    let mut is_ours = true;
    walk(key, End::First, |score, member| {
        let holder = Record::read_member(score, member).map(|record| Holder::of(&record));
        is_ours = holder.is_some();
        if let Some(holder) = holder {
            set.holders.put(holder);
        }
        is_ours
    });
    (is_ours && set.holders.len() == count).then_some(set)
}

/// Keeps a set for the next command, if it is or was large.
pub fn keep(context: &Context, name: Arg<'_>, mut set: Box<Set>) {
    let place = set.place.take();
    if set.holders.is_empty()
        || !set.ended.is_empty()
        || (place.is_none() && (set.holders.len() <= FEW || context.is_replica()))
    {
        return;
    }
    let _ = state::with(|State { kept, .. }| {
        let place = place.unwrap_or_else(|| {
            kept.set_place(context.selected_db(), name.as_bytes());
            kept.place.as_slice().into()
        });
        kept.put(place, set);
    });
}

/// Whether the one that ends last is the same in the set as in what was kept.
fn is_current(key: &Key<'_>, kept: &Holders) -> bool {
    let Some(last) = kept.last_to_end() else { return false };
    let mut is_same = false;
    walk(key, End::Last, |score, member| {
        let found = Record::read_member(score, member);
        is_same = found.is_some_and(|found| (found.timestamp, found.token) == (last.timestamp, last.token));
        false
    });
    is_same
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// Shows `see` the members from one end on, until it says false.
fn walk(key: &Key<'_>, from: End, mut see: impl FnMut(f64, &[u8]) -> bool) {
    let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
    // SAFETY: the handle is an open sorted set; nothing changes it until the walk is over. Each string
    // that the server gives is freed by its owner here.
    unsafe {
        let begun = match from {
            End::First => (api().zset_first_in_score_range)(key.handle, low, high, 0, 0),
            End::Last => (api().zset_last_in_score_range)(key.handle, low, high, 0, 0),
        };
        if begun != 0 {
            return;
        }
        loop {
            let mut score = 0.0;
            let member = (api().zset_range_current_element)(key.handle, &raw mut score);
            let Some(member) = OwnString::given(member) else { break };
            if !see(score, member.as_arg().as_bytes()) || (api().zset_range_next)(key.handle) == 0 {
                break;
            }
        }
        (api().zset_range_stop)(key.handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::time::UnixMicros;

    impl Kept {
        fn len(&self) -> usize {
            self.sets.as_ref().map_or(0, LruCache::len)
        }
    }

    fn set(holders: u64) -> Box<Set> {
        let mut set = Box::new(Set::default());
        for token in 1..=holders {
            let token = Token::new(token).unwrap();
            set.holders.put(Holder { timestamp: UnixMicros(9), token, id: None, owner: None });
        }
        set
    }

    fn place(kept: &mut Kept, db: i32, name: &[u8]) -> Box<[u8]> {
        kept.set_place(db, name);
        kept.place.as_slice().into()
    }

    #[test]
    fn a_set_is_taken_by_its_own_name_and_database() {
        let mut kept = Kept::default();
        for (db, holders) in [(0, 3), (1, 4)] {
            let place = place(&mut kept, db, b"k");
            kept.put(place, set(holders));
        }
        assert_eq!(kept.take(1, b"k").unwrap().holders.len(), 4);
        assert!(kept.take(1, b"k").is_none() && kept.take(0, b"x").is_none());
        let taken = kept.take(0, b"k").unwrap();
        assert_eq!((taken.holders.len(), kept.len()), (3, 0));
        kept.put(taken.place.clone().unwrap(), taken);
        assert_eq!(kept.take(0, b"k").unwrap().holders.len(), 3);
    }

    #[test]
    fn a_set_that_nobody_asks_for_is_given_up() {
        let mut kept = Kept::default();
        for name in [b"a", b"b"] {
            let place = place(&mut kept, 0, name);
            kept.put(place, set(3));
        }
        for _ in 1..UNUSED {
            kept.tick();
        }
        let used = kept.take(0, b"a").unwrap();
        kept.put(used.place.clone().unwrap(), used);
        kept.tick();
        assert!(kept.take(0, b"b").is_none());
        assert_eq!(kept.len(), 1);
        assert!(kept.take(0, b"a").is_some());
    }
}
