//! The lines by the names of their keys. It grows in small steps: one map of a million names would stop the server for
//! tens of milliseconds each time it grows.

use super::LineId;
use hashbrown::hash_table::Entry;
use hashbrown::HashTable;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::rc::Rc;

/// How many names the first map holds.
const FIRST: usize = 14_336;
/// How many maps share the others.
const SHARDS: usize = 64;

#[derive(Clone, Debug)]
struct Named {
    db: i32,
    name: Rc<[u8]>,
    line: LineId,
}

/// The lines of all keys. Names come from clients, so they are hashed with a secret key.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    hasher: RandomState,
    first: HashTable<Named>,
    /// The names for which the first map has no room, by their hashes; none until then.
    others: Vec<HashTable<Named>>,
    len: usize,
}

/// Most names are in one database: its number need not be mixed well.
fn hash(hasher: &RandomState, db: i32, name: &[u8]) -> u64 {
    hasher.hash_one(name) ^ u64::from(db.cast_unsigned())
}

impl Index {
    fn shard(hash: u64) -> usize {
        // The low bits place a name within its map.
        usize::try_from(hash >> 40).unwrap_or(0) % SHARDS
    }

    /// The line of a key.
    pub(super) fn get(&self, db: i32, name: &[u8]) -> Option<LineId> {
        if self.len == 0 {
            return None;
        }
        let wanted = hash(&self.hasher, db, name);
        let is_it = |named: &Named| named.db == db && *named.name == *name;
        let found = self.first.find(wanted, is_it);
        found.or_else(|| self.others.get(Self::shard(wanted))?.find(wanted, is_it)).map(|named| named.line)
    }

    /// Adds the line of a key that has none.
    pub(super) fn insert(&mut self, db: i32, name: Rc<[u8]>, line: LineId) {
        let wanted = hash(&self.hasher, db, &name);
        if self.first.len() >= FIRST && self.others.is_empty() {
            self.others.resize_with(SHARDS, HashTable::new);
        }
        let Self { hasher, first, others, .. } = self;
        let rehash = |named: &Named| hash(hasher, named.db, &named.name);
        let table = if first.len() < FIRST { Some(first) } else { others.get_mut(Self::shard(wanted)) };
        if let Some(table) = table {
            table.insert_unique(wanted, Named { db, name, line }, rehash);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Removes a line.
    pub(super) fn remove(&mut self, db: i32, name: &[u8], line: LineId) {
        let wanted = hash(&self.hasher, db, name);
        let is_it = |named: &Named| named.line == line && named.db == db && *named.name == *name;
        let Self { hasher, first, others, .. } = self;
        let rehash = |named: &Named| hash(hasher, named.db, &named.name);
        for table in std::iter::once(first).chain(others.get_mut(Self::shard(wanted))) {
            if let Entry::Occupied(entry) = table.entry(wanted, is_it, rehash) {
                entry.remove();
                self.len = self.len.saturating_sub(1);
                break;
            }
        }
        if self.len == 0 {
            self.others = Vec::new();
        }
    }

    /// Returns the memory that a crowd used.
    pub(super) fn shrink(&mut self) {
        let hasher = &self.hasher;
        let rehash = |named: &Named| hash(hasher, named.db, &named.name);
        self.first.shrink_to_fit(rehash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_names_than_the_first_map_holds_are_found_and_removed() {
        let name = |number: usize| -> Rc<[u8]> { number.to_string().into_bytes().into() };
        let line = |number: usize| LineId(u64::try_from(number).unwrap());
        let many = FIRST * 2;
        let mut index = Index::default();
        for number in 0..many {
            index.insert(i32::try_from(number % 2).unwrap(), name(number), line(number));
        }
        assert_eq!(index.get(1, &name(0)), None, "another database");
        for number in (0..many).rev() {
            let db = i32::try_from(number % 2).unwrap();
            assert_eq!(index.get(db, &name(number)), Some(line(number)));
            index.remove(db, &name(number), line(number + 1));
            assert!(index.get(db, &name(number)).is_some(), "the name belongs to a newer line");
            index.remove(db, &name(number), line(number));
            assert_eq!(index.get(db, &name(number)), None);
        }
        assert_eq!((index.len, index.others.len()), (0, 0));
    }
}
