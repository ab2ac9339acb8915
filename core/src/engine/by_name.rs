//! A map from keys to values that grows in small steps: a single map of a million names would stop the server for tens
//! of milliseconds each time it grows.

use super::budget::Budget;
use super::key_name::KeyName;
use super::names::Mark;
use hashbrown::HashTable;
use std::rc::Rc;

/// The capacity of the first map.
const FIRST: usize = 14_336;
/// An empty map with room for more names than this frees its memory.
const FEW: usize = 1_024;
/// How many maps share the other names.
const SHARDS: usize = 64;

#[derive(Clone, Debug)]
struct Named<T> {
    db: i32,
    /// Rehashing all names when a map grows would stop the server.
    mark: Mark,
    name: Rc<[u8]>,
    it: T,
}

impl<T> Named<T> {
    fn is(&self, key: KeyName<'_>, mark: Mark) -> bool {
        self.mark == mark && self.db == key.db && *self.name == *key.name
    }
}

/// A map from keys. Names come from clients, so their marks are computed with a secret key.
#[derive(Clone, Debug)]
pub(super) struct ByName<T> {
    first: HashTable<Named<T>>,
    /// The names for which the first map has no room, by hash; empty until then.
    others: Vec<HashTable<Named<T>>>,
    len: usize,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self { first: HashTable::new(), others: Vec::new(), len: 0 }
    }
}

/// Most names are in one database: its number need not be mixed well.
fn hash(db: i32, mark: Mark) -> u64 {
    mark.spread() ^ u64::from(db.cast_unsigned())
}

impl<T> ByName<T> {
    /// Whether there are no names.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn shard(hash: u64) -> usize {
        // The low bits place a name within its map.
        usize::try_from(hash >> 40).unwrap_or(0) % SHARDS
    }

    /// A key's stored name and its value.
    pub(super) fn get(&self, key: KeyName<'_>, mark: Mark) -> Option<(&Rc<[u8]>, &T)> {
        let wanted = hash(key.db, mark);
        let is_it = |named: &Named<T>| named.is(key, mark);
        let found = self.first.find(wanted, is_it);
        let found = found.or_else(|| self.others.get(Self::shard(wanted))?.find(wanted, is_it));
        found.map(|named| (&named.name, &named.it))
    }

    /// Like [`Self::get`], with a mutable value.
    pub(super) fn get_mut(&mut self, key: KeyName<'_>, mark: Mark) -> Option<(&Rc<[u8]>, &mut T)> {
        let wanted = hash(key.db, mark);
        let is_it = |named: &Named<T>| named.is(key, mark);
        let found = self.first.find_mut(wanted, is_it);
        let found = found.or_else(|| self.others.get_mut(Self::shard(wanted))?.find_mut(wanted, is_it));
        found.map(|named| (&named.name, &mut named.it))
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, db: i32, name: Rc<[u8]>, mark: Mark, it: T) {
        let wanted = hash(db, mark);
        if self.first.len() >= FIRST && self.others.is_empty() {
            self.others.resize_with(SHARDS, HashTable::new);
        }
        let Self { first, others, .. } = self;
        let rehash = |named: &Named<T>| hash(named.db, named.mark);
        let table = if first.len() < FIRST { Some(first) } else { others.get_mut(Self::shard(wanted)) };
        if let Some(table) = table {
            table.insert_unique(wanted, Named { db, mark, name, it }, rehash);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Removes a key if its value is the intended one.
    pub(super) fn remove_if(&mut self, key: KeyName<'_>, mark: Mark, is_meant: impl Fn(&T) -> bool) {
        let wanted = hash(key.db, mark);
        let is_it = |named: &Named<T>| named.is(key, mark) && is_meant(&named.it);
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

    /// All keys, in no particular order.
    #[cfg(any(test, feature = "model"))]
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &Rc<[u8]>, &T)> {
        let all = std::iter::once(&self.first).chain(&self.others).flat_map(HashTable::iter);
        all.map(|named| (named.db, &named.name, &named.it))
    }

    /// Drops names until the budget is spent; `cost` is a value's cost without its name. Returns whether none is left.
    pub(super) fn drop_piece(&mut self, budget: &mut Budget, cost: impl Fn(&T) -> usize) -> bool {
        while budget.has_left() && self.len > 0 {
            let table = self.others.last_mut().unwrap_or(&mut self.first);
            for named in table.extract_if(|_| true) {
                self.len = self.len.saturating_sub(1);
                budget.spend_names(cost(&named.it).saturating_add(1), named.name.len());
                if !budget.has_left() {
                    break;
                }
            }
            if table.is_empty() && self.others.pop().is_none() {
                self.first = HashTable::new();
            }
        }
        self.len == 0
    }

    /// Frees the memory that many names used.
    pub(super) fn shrink(&mut self) {
        self.first.shrink_to_fit(|named| hash(named.db, named.mark));
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Marks;
    use super::*;

    #[test]
    fn more_names_than_the_first_map_holds_are_found_and_removed() {
        let name = |number: usize| -> Rc<[u8]> { number.to_string().into_bytes().into() };
        let many = FIRST * 2;
        let (mut map, marks) = (ByName::default(), Marks::default());
        let mark = |number: usize| marks.of(&name(number));
        for number in 0..many {
            map.insert(i32::try_from(number % 2).unwrap(), name(number), mark(number), number);
        }
        assert_eq!(map.get(KeyName::new(1, &name(0)), mark(0)), None, "another database");
        assert_eq!(map.iter().count(), many);
        for number in (0..many).rev() {
            let db = i32::try_from(number % 2).unwrap();
            let (own, mark) = (name(number), mark(number));
            assert_eq!(map.get(KeyName::new(db, &own), mark), Some((&own, &number)));
            assert_eq!(map.get_mut(KeyName::new(db, &own), mark).map(|(_, it)| *it), Some(number));
            map.remove_if(KeyName::new(db, &own), mark, |it| *it == number + 1);
            assert!(map.get(KeyName::new(db, &own), mark).is_some(), "something else has that name");
            map.remove_if(KeyName::new(db, &own), mark, |it| *it == number);
            assert_eq!(map.get(KeyName::new(db, &own), mark), None);
        }
        assert_eq!((map.len, map.others.len(), map.first.capacity()), (0, 0, 0));
    }

    #[test]
    fn names_are_dropped_in_pieces_within_the_budget() {
        let (mut map, marks) = (ByName::default(), Marks::default());
        for number in 0..2 * FIRST {
            let name: Rc<[u8]> = number.to_string().into_bytes().into();
            map.insert(0, Rc::clone(&name), marks.of(&name), ());
        }
        // One for the name and one for the value.
        let most = Budget::PART / 2;
        let piece = |map: &mut ByName<()>| map.drop_piece(&mut Budget::of(Budget::PART), |()| 1);
        for left in (0..2 * FIRST).step_by(most).rev() {
            assert_eq!(piece(&mut map), left == 0);
            assert_eq!((map.len, map.iter().count()), (left, left));
        }
        assert_eq!((map.others.len(), map.first.capacity()), (0, 0));
    }
}
