//! The keys of one attempt: nearly always just one; several share one block of memory.

use rustc_hash::FxHashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::rc::Rc;

/// The names of several keys, with eight bytes of overhead for each.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    bytes: Box<[u8]>,
    /// Where each name ends in `bytes`.
    ends: Box<[u32]>,
    /// A hash of each name, so that most names are distinguished without comparing their bytes.
    marks: Box<[Mark]>,
}

/// A hash of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(u32);

impl Mark {
    /// The smallest.
    pub(super) const FIRST: Self = Self(0);

    /// The hash for a table, which places names by the lowest and highest bits.
    pub(super) fn spread(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Computes marks with a secret key, so that nobody can choose names with equal marks. Hashing is the most expensive
/// thing done with a long name, so a mark is kept with its name.
#[derive(Clone, Debug, Default)]
pub struct Marks(RandomState);

impl Marks {
    #[must_use]
    pub fn of(&self, name: &[u8]) -> Mark {
        let [.., a, b, c, d] = self.0.hash_one(name).to_be_bytes();
        Mark(u32::from_be_bytes([a, b, c, d]))
    }
}

/// Names to be found among those of many attempts.
#[derive(Debug)]
pub struct Wanted<'a> {
    names: &'a [&'a [u8]],
    marks: FxHashSet<Mark>,
    /// Sorted, each with the index of its name.
    numbers: Vec<(Mark, usize)>,
}

impl<'a> Wanted<'a> {
    /// Prepares to find these names.
    #[must_use]
    pub fn of(names: &'a [&'a [u8]], marks: impl Iterator<Item = Mark>) -> Self {
        let mut numbers: Vec<(Mark, usize)> = marks.enumerate().map(|(at, mark)| (mark, at)).collect();
        numbers.sort_unstable();
        Self { names, marks: numbers.iter().map(|(mark, _)| *mark).collect(), numbers }
    }

    /// The indexes of the wanted names found in `names`.
    pub fn among<'b>(&'b self, names: &'b Names) -> impl Iterator<Item = usize> + 'b {
        let likely = names.marks.iter().enumerate().filter(|(_, mark)| self.marks.contains(mark));
        likely.filter_map(|(at, mark)| {
            let name = names.get(at)?;
            let from = self.numbers.partition_point(|(own, _)| own < mark);
            let same = self.numbers.get(from..)?.iter().take_while(|(own, _)| own == mark);
            same.map(|(_, number)| *number).find(|number| self.names.get(*number).is_some_and(|own| *own == name))
        })
    }
}

impl Names {
    /// Copies the names.
    #[must_use]
    pub fn of(names: &[&[u8]], marks: &Marks) -> Self {
        let mut end = 0_usize;
        let ends = names.iter().map(|name| {
            end = end.saturating_add(name.len());
            u32::try_from(end).unwrap_or(u32::MAX)
        });
        let marks = names.iter().map(|name| marks.of(name)).collect();
        Self { ends: ends.collect(), bytes: names.concat().into(), marks }
    }

    /// The number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The total size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The name with that index.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let from = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        let range = usize::try_from(from).ok()?..usize::try_from(*self.ends.get(at)?).ok()?;
        self.bytes.get(range)
    }

    /// The mark of the name with this index.
    pub(super) fn mark(&self, at: usize) -> Option<Mark> {
        self.marks.get(at).copied()
    }

    /// Whether a name is among them.
    #[must_use]
    pub fn contains(&self, name: &[u8], mark: Mark) -> bool {
        let likely = self.marks.iter().enumerate().filter(|(_, own)| **own == mark);
        likely.filter_map(|(at, _)| self.get(at)).any(|own| own == name)
    }

    /// All names, in the order of the command.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

/// The keys of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    One(Rc<[u8]>, Mark),
    Several(Rc<Names>),
}

impl Keys {
    /// The number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Several(names) => names.len(),
        }
    }

    /// Whether there are no names, which never happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The total size of the names in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::One(name, _) => name.len(),
            Self::Several(names) => names.size(),
        }
    }

    /// The name with that index.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        match self {
            Self::One(name, _) => Some(name.as_ref()).filter(|_| at == 0),
            Self::Several(names) => names.get(at),
        }
    }

    /// Whether a name is among them.
    #[must_use]
    pub fn contains(&self, name: &[u8], marks: &Marks) -> bool {
        match self {
            Self::One(own, _) => own.as_ref() == name,
            Self::Several(names) => names.contains(name, marks.of(name)),
        }
    }

    /// The marks of all names, in the order of the command.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        match self {
            Self::One(_, mark) => std::slice::from_ref(mark),
            Self::Several(names) => &names.marks,
        }
    }

    /// All names, in the order of the command.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}
