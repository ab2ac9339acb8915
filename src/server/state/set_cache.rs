//! Caches sets of holders from one command to the next, the most recently used first.
//!
//! It is bounded: all sets together have at most [`MOST`] holders, and long names count like holders. An unused set is
//! dropped after about ten seconds, since nothing reports a key that vanishes. Large amounts are freed a part at a
//! time. An empty cache frees all its memory.
//!
//! A set is found by the hash of its name, which is kept: a growing map would hash all names again, and with 4 kB each
//! that stopped the server for 90 ms.

use crate::engine::KeyName;
use crate::lock::change::Members;
use crate::lock::holders::Holders;
use crate::lock::token::Token;
use lru::LruCache;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::{BuildHasher, RandomState};

/// The most holders in memory, of all sets together: 36 MB of holders with IDs and owners of 40 characters, or of
/// names.
const MOST: usize = 262_144;
/// The ticks after which an unused set is dropped; there are about ten a second.
const UNUSED: u64 = 100;
/// How many holders are freed in one tick.
const PART: usize = 8_192;
/// The cost of a set besides its holders and its name, counted in holders.
const OF_SET: usize = 2;
/// How many bytes of a name count as a holder.
const BYTES: usize = 128;

/// The holders in a sorted set.
#[derive(Default)]
pub struct Set {
    pub members: Members,
    /// Whether the server stores it in the form for many members, in which a change costs O(log n): see
    /// `keys/write.rs`.
    pub is_tree: bool,
    /// The database and name of its key, if it is in the cache or came from it.
    hashed_key: Option<HashedKey>,
    /// The tick of its last use.
    used: u64,
    /// How many times it was used.
    pub uses: u8,
    /// The grant that the key was last asked about.
    pub asked: Option<Token>,
}

impl From<Members> for Box<Set> {
    /// A set that was read from its key or is about to be written.
    fn from(members: Members) -> Self {
        Self::new(Set { members, ..Set::default() })
    }
}

impl Set {
    /// Whether it came from the cache, and was not read from the key by this command.
    #[must_use]
    pub const fn was_kept(&self) -> bool {
        self.hashed_key.is_some()
    }

    /// The key under which it is cached.
    pub const fn take_key(&mut self) -> Option<HashedKey> {
        self.hashed_key.take()
    }

    /// How many holders it counts for: its own, plus those for its name.
    fn size(&self) -> usize {
        let bytes = self.hashed_key.as_ref().map_or(0, |hashed_key| hashed_key.name.len());
        self.members.holders.len().saturating_add(bytes / BYTES)
    }
}

/// The database and the name of a key.
pub struct HashedKey {
    /// The hash of both.
    hash: u64,
    db: i32,
    name: Box<[u8]>,
}

/// Sets of holders by the database and the name of their key.
#[derive(Default)]
pub struct Kept {
    current: Sets,
    /// Sets that were dropped all at once, still to be freed.
    given_up: Vec<Sets>,
    tick: u64,
    /// Hashes keys with a secret, so that no client can choose names with equal hashes.
    hasher: RandomState,
}

#[derive(Default)]
struct Sets {
    /// By the hashes of their keys; of two sets with the same hash, the newer is kept. `None` before the first set,
    /// since even an empty cache uses memory.
    by_hash: Option<LruCache<u64, Box<Set>, FxBuildHasher>>,
    /// The hash of the key of each set, by the token of its last holder to expire.
    by_last: FxHashMap<Token, u64>,
    /// The holders that all sets count for.
    size: usize,
}

impl Kept {
    pub fn clear(&mut self) {
        let sets = std::mem::take(&mut self.current);
        if sets.by_hash.is_some() {
            self.given_up.push(sets);
        }
    }

    /// Frees some of the dropped sets, and drops sets that have not been used for a while.
    pub fn tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        let mut freed = 0_usize;
        while freed < PART {
            let Some(sets) = self.given_up.last_mut() else { break };
            match sets.pop_last() {
                Some(size) => freed = freed.saturating_add(size).saturating_add(OF_SET),
                None => drop(self.given_up.pop()),
            }
        }
        let tick = self.tick;
        while freed < PART && self.current.last().is_some_and(|set| tick.wrapping_sub(set.used) >= UNUSED) {
            let size = self.current.pop_last().unwrap_or_default();
            freed = freed.saturating_add(size).saturating_add(OF_SET);
        }
        if self.current.by_hash.as_ref().is_some_and(LruCache::is_empty) {
            self.current = Sets::default();
        }
    }

    /// The key under which its set is cached.
    #[must_use]
    pub fn hashed_key(&self, key: KeyName<'_>) -> HashedKey {
        HashedKey { hash: self.hash(key), db: key.db, name: key.name.into() }
    }

    fn hash(&self, key: KeyName<'_>) -> u64 {
        self.hasher.hash_one((key.db, key.name))
    }

    /// Removes and returns the set of a key, which then remembers it.
    pub fn take(&mut self, key: KeyName<'_>) -> Option<Box<Set>> {
        self.current.by_hash.as_ref()?;
        let hash = self.hash(key);
        self.current.take_if(hash, |hashed_key| hashed_key.db == key.db && *hashed_key.name == *key.name)
    }

    pub fn put(&mut self, hashed_key: HashedKey, mut set: Box<Set>) {
        set.used = self.tick;
        self.current.put(hashed_key, set);
        while self.current.size > MOST {
            if self.current.pop_last().is_none() {
                return;
            }
        }
    }

    /// Called when these holders were read from a key that is not in memory. If they are known under another name, the
    /// key was renamed, moved or copied, and that name's set is dropped.
    pub fn give_up_moved(&mut self, holders: &Holders) {
        if self.current.by_last.is_empty() {
            return;
        }
        for token in holders.tokens() {
            if let Some(hash) = self.current.by_last.get(&token).copied() {
                self.current.take_if(hash, |_| true);
            }
        }
    }
}

impl Sets {
    fn last(&self) -> Option<&Set> {
        self.by_hash.as_ref()?.peek_lru().map(|(_, set)| &**set)
    }

    /// Drops the least recently used set. Returns the holders that it counted for.
    fn pop_last(&mut self) -> Option<usize> {
        let (hash, set) = self.by_hash.as_mut()?.pop_lru()?;
        self.taken(hash, &set);
        Some(set.size())
    }

    fn take_if(&mut self, hash: u64, is_it: impl Fn(&HashedKey) -> bool) -> Option<Box<Set>> {
        let sets = self.by_hash.as_mut()?;
        sets.peek(&hash).filter(|set| set.hashed_key.as_ref().is_some_and(is_it))?;
        let set = sets.pop(&hash)?;
        self.taken(hash, &set);
        Some(set)
    }

    fn put(&mut self, hashed_key: HashedKey, mut set: Box<Set>) {
        let hash = hashed_key.hash;
        set.hashed_key = Some(hashed_key);
        self.size = self.size.saturating_add(set.size());
        let last = set.members.holders.last_to_end().map(|last| last.token);
        let by_hash = self.by_hash.get_or_insert_with(|| LruCache::unbounded_with_hasher(FxBuildHasher));
        if let Some(earlier) = by_hash.put(hash, set) {
            self.taken(hash, &earlier);
        }
        if let Some(last) = last {
            self.by_last.insert(last, hash);
        }
    }

    /// Updates the counts after a set was removed.
    fn taken(&mut self, hash: u64, set: &Set) {
        self.size = self.size.saturating_sub(set.size());
        if let Some(last) = set.members.holders.last_to_end() {
            // A copy of the key can have the same last holder.
            if self.by_last.get(&last.token) == Some(&hash) {
                self.by_last.remove(&last.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::holders::Holder;
    use crate::lock::time::UnixMicros;

    impl Kept {
        fn len(&self) -> usize {
            self.current.by_hash.as_ref().map_or(0, LruCache::len)
        }

        fn is_nothing(&self) -> bool {
            let Sets { by_hash, by_last, size } = &self.current;
            by_hash.is_none() && by_last.capacity() == 0 && *size == 0 && self.given_up.is_empty()
        }
    }

    fn set(tokens: std::ops::Range<u64>) -> Box<Set> {
        let holder =
            |token| Holder { timestamp: UnixMicros(token), token: Token::new(token).unwrap(), id: None, owner: None };
        Members { holders: tokens.map(holder).collect(), ended: Vec::new() }.into()
    }

    fn put(kept: &mut Kept, key: KeyName<'_>, set: Box<Set>) {
        let hashed_key = kept.hashed_key(key);
        kept.put(hashed_key, set);
    }

    fn put_back(kept: &mut Kept, mut set: Box<Set>) {
        let hashed_key = set.hashed_key.take().unwrap();
        kept.put(hashed_key, set);
    }

    #[test]
    fn a_set_is_taken_by_its_own_name_and_database() {
        let mut kept = Kept::default();
        put(&mut kept, KeyName::new(0, b"k"), set(0..3));
        put(&mut kept, KeyName::new(1, b"k"), set(10..14));
        assert_eq!(kept.take(KeyName::new(1, b"k")).unwrap().members.holders.len(), 4);
        assert!(kept.take(KeyName::new(1, b"k")).is_none() && kept.take(KeyName::new(0, b"x")).is_none());
        let taken = kept.take(KeyName::new(0, b"k")).unwrap();
        assert_eq!((taken.members.holders.len(), kept.len()), (3, 0));
        put_back(&mut kept, taken);
        assert_eq!(kept.take(KeyName::new(0, b"k")).unwrap().members.holders.len(), 3);
    }

    #[test]
    fn an_unused_cached_set_is_dropped() {
        let mut kept = Kept::default();
        put(&mut kept, KeyName::new(0, b"a"), set(0..3));
        put(&mut kept, KeyName::new(0, b"b"), set(10..13));
        for _ in 1..UNUSED {
            kept.tick();
        }
        let used = kept.take(KeyName::new(0, b"a")).unwrap();
        put_back(&mut kept, used);
        kept.tick();
        assert!(kept.take(KeyName::new(0, b"b")).is_none());
        assert_eq!(kept.len(), 1);
        for _ in 1..UNUSED {
            assert!(!kept.is_nothing());
            kept.tick();
        }
        assert!(kept.is_nothing());
    }

    #[test]
    fn only_a_limited_number_of_holders_is_in_memory() {
        const SIZE: u64 = 4_096;
        let fit = MOST as u64 / SIZE;
        let mut kept = Kept::default();
        for n in 0..fit + 3 {
            put(&mut kept, KeyName::new(0, &n.to_ne_bytes()), set(n * SIZE..(n + 1) * SIZE));
        }
        assert_eq!(kept.current.size, MOST);
        assert_eq!((kept.len() as u64, kept.current.by_last.len() as u64), (fit, fit));
        assert!(kept.take(KeyName::new(0, &2_u64.to_ne_bytes())).is_none());
        assert!(kept.take(KeyName::new(0, &3_u64.to_ne_bytes())).is_some());
    }

    #[test]
    fn long_names_count_as_holders_do() {
        let mut kept = Kept::default();
        let name = |n: u64| [&n.to_ne_bytes()[..], &[b'x'; 128 * 99]].concat();
        for n in 0..3_000 {
            put(&mut kept, KeyName::new(0, &name(n)), set(n * 3..n * 3 + 3));
        }
        assert_eq!((kept.len(), kept.current.size), (MOST / 102, MOST / 102 * 102));
        assert!(kept.take(KeyName::new(0, &name(2_999))).is_some());
        assert_eq!(kept.current.size, (MOST / 102 - 1) * 102);
    }

    #[test]
    fn colliding_hashes_keep_the_newer_set() {
        let mut kept = Kept::default();
        let at = |name: &[u8]| HashedKey { hash: 7, db: 0, name: name.into() };
        kept.put(at(b"a"), set(0..3));
        kept.put(at(b"b"), set(10..13));
        assert_eq!((kept.len(), kept.current.size, kept.current.by_last.len()), (1, 3, 1));
        assert!(kept.current.take_if(7, |hashed_key| *hashed_key.name == *b"a").is_none());
        assert!(kept.current.take_if(7, |hashed_key| *hashed_key.name == *b"b").is_some());
        assert!(kept.current.size == 0 && kept.current.by_last.is_empty());
    }

    #[test]
    fn dropped_sets_are_freed_in_parts() {
        let mut kept = Kept::default();
        for n in 0..10_u64 {
            put(&mut kept, KeyName::new(0, &n.to_ne_bytes()[..]), set(n * 4_096..(n + 1) * 4_096));
        }
        kept.clear();
        assert!(kept.take(KeyName::new(0, &1_u64.to_ne_bytes())).is_none());
        for ticks in 1.. {
            let before = kept.given_up.first().map_or(0, |sets| sets.size);
            kept.tick();
            let after = kept.given_up.first().map_or(0, |sets| sets.size);
            assert!(before - after <= PART + 4_096);
            if kept.is_nothing() {
                assert!((4..8).contains(&ticks), "{ticks}");
                break;
            }
        }
    }

    #[test]
    fn a_renamed_set_leaves_the_cache_under_its_old_name() {
        let mut kept = Kept::default();
        put(&mut kept, KeyName::new(0, b"moved"), set(0..5));
        put(&mut kept, KeyName::new(0, b"other"), set(10..15));
        kept.give_up_moved(&set(0..5).members.holders);
        assert!(kept.take(KeyName::new(0, b"moved")).is_none());
        // A set that has lost its last holder since then was changed under its other name, so it was dropped earlier.
        kept.give_up_moved(&set(10..14).members.holders);
        assert!(kept.take(KeyName::new(0, b"other")).is_some());
    }
}
