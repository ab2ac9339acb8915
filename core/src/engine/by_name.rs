//! What there is for each key, by its name. It grows in small steps: one map of a million names would stop the server
//! for tens of milliseconds each time it grows.

use hashbrown::HashTable;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::rc::Rc;

/// How many names the first map holds.
const FIRST: usize = 14_336;
/// An empty map for more names than this gives its memory back.
const FEW: usize = 1_024;
/// How many maps share the others.
const SHARDS: usize = 64;

#[derive(Clone, Debug)]
struct Named<T> {
    db: i32,
    name: Rc<[u8]>,
    it: T,
}

/// A map from keys. Names come from clients, so they are hashed with a secret key.
#[derive(Clone, Debug)]
pub(super) struct ByName<T> {
    hasher: RandomState,
    first: HashTable<Named<T>>,
    /// The names for which the first map has no room, by their hashes; none until then.
    others: Vec<HashTable<Named<T>>>,
    len: usize,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self { hasher: RandomState::default(), first: HashTable::new(), others: Vec::new(), len: 0 }
    }
}

/// Most names are in one database: its number need not be mixed well.
fn hash(hasher: &RandomState, db: i32, name: &[u8]) -> u64 {
    hasher.hash_one(name) ^ u64::from(db.cast_unsigned())
}

impl<T> ByName<T> {
    fn shard(hash: u64) -> usize {
        // The low bits place a name within its map.
        usize::try_from(hash >> 40).unwrap_or(0) % SHARDS
    }

    /// What there is for a key, and the stored name of the key.
    pub(super) fn get(&self, db: i32, name: &[u8]) -> Option<(&Rc<[u8]>, &T)> {
        if self.len == 0 {
            return None;
        }
        let wanted = hash(&self.hasher, db, name);
        let is_it = |named: &Named<T>| named.db == db && *named.name == *name;
        let found = self.first.find(wanted, is_it);
        let found = found.or_else(|| self.others.get(Self::shard(wanted))?.find(wanted, is_it));
        found.map(|named| (&named.name, &named.it))
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, db: i32, name: &[u8]) -> Option<(&Rc<[u8]>, &mut T)> {
        if self.len == 0 {
            return None;
        }
        let wanted = hash(&self.hasher, db, name);
        let is_it = |named: &Named<T>| named.db == db && *named.name == *name;
        let found = self.first.find_mut(wanted, is_it);
        let found = found.or_else(|| self.others.get_mut(Self::shard(wanted))?.find_mut(wanted, is_it));
        found.map(|named| (&named.name, &mut named.it))
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, db: i32, name: Rc<[u8]>, it: T) {
        let wanted = hash(&self.hasher, db, &name);
        if self.first.len() >= FIRST && self.others.is_empty() {
            self.others.resize_with(SHARDS, HashTable::new);
        }
        let Self { hasher, first, others, .. } = self;
        let rehash = |named: &Named<T>| hash(hasher, named.db, &named.name);
        let table = if first.len() < FIRST { Some(first) } else { others.get_mut(Self::shard(wanted)) };
        if let Some(table) = table {
            table.insert_unique(wanted, Named { db, name, it }, rehash);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Removes a key, if what there is for it is that which is meant.
    pub(super) fn remove_if(&mut self, db: i32, name: &[u8], is_meant: impl Fn(&T) -> bool) {
        let wanted = hash(&self.hasher, db, name);
        let is_it = |named: &Named<T>| named.db == db && *named.name == *name && is_meant(&named.it);
        let Self { first, others, .. } = self;
        for table in std::iter::once(first).chain(others.get_mut(Self::shard(wanted))) {
            if let Ok(entry) = table.find_entry(wanted, &is_it) {
                entry.remove();
                self.len = self.len.saturating_sub(1);
                break;
            }
        }
        if self.len == 0 {
            self.others = Vec::new();
            if self.first.capacity() > FEW {
                self.first = HashTable::new();
            }
        }
    }

    /// All keys, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &Rc<[u8]>, &T)> {
        let all = std::iter::once(&self.first).chain(&self.others).flat_map(HashTable::iter);
        all.map(|named| (named.db, &named.name, &named.it))
    }

    /// Drops one of the maps. Returns whether it was the last.
    pub(super) fn drop_piece(&mut self) -> bool {
        if self.others.pop().is_none() {
            self.first = HashTable::new();
            self.len = 0;
        }
        self.len == 0
    }

    /// Returns the memory that a crowd used.
    pub(super) fn shrink(&mut self) {
        let hasher = &self.hasher;
        let rehash = |named: &Named<T>| hash(hasher, named.db, &named.name);
        self.first.shrink_to_fit(rehash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_names_than_the_first_map_holds_are_found_and_removed() {
        let name = |number: usize| -> Rc<[u8]> { number.to_string().into_bytes().into() };
        let many = FIRST * 2;
        let mut map = ByName::default();
        for number in 0..many {
            map.insert(i32::try_from(number % 2).unwrap(), name(number), number);
        }
        assert_eq!(map.get(1, &name(0)), None, "another database");
        assert_eq!(map.iter().count(), many);
        for number in (0..many).rev() {
            let db = i32::try_from(number % 2).unwrap();
            assert_eq!(map.get(db, &name(number)), Some((&name(number), &number)));
            assert_eq!(map.get_mut(db, &name(number)).map(|(_, it)| *it), Some(number));
            map.remove_if(db, &name(number), |it| *it == number + 1);
            assert!(map.get(db, &name(number)).is_some(), "something else has that name");
            map.remove_if(db, &name(number), |it| *it == number);
            assert_eq!(map.get(db, &name(number)), None);
        }
        assert_eq!((map.len, map.others.len(), map.first.capacity()), (0, 0, 0));
    }

    #[test]
    fn it_is_dropped_map_by_map() {
        let mut map = ByName::default();
        for number in 0..=FIRST {
            map.insert(0, number.to_string().into_bytes().into(), ());
        }
        let pieces = std::iter::from_fn(|| (!map.drop_piece()).then_some(())).count();
        assert_eq!((pieces, map.iter().count(), map.first.capacity()), (SHARDS, 0, 0));
    }
}
