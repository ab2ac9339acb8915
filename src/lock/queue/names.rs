//! The keys of one attempt: one, as nearly always, or several in one piece of memory.

use std::rc::Rc;

/// The names of several keys: what they cost is their bytes, and four more for each.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    bytes: Box<[u8]>,
    /// Where in `bytes` each of them ends.
    ends: Box<[u32]>,
}

impl Names {
    /// Copies them.
    #[must_use]
    pub fn of(names: &[&[u8]]) -> Self {
        let mut end = 0_usize;
        let ends = names.iter().map(|name| {
            end = end.saturating_add(name.len());
            u32::try_from(end).unwrap_or(u32::MAX)
        });
        Self { ends: ends.collect(), bytes: names.concat().into() }
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes they have together.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The one with that number.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let from = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        let range = usize::try_from(from).ok()?..usize::try_from(*self.ends.get(at)?).ok()?;
        self.bytes.get(range)
    }

    /// All of them, in the order of the call.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

/// The keys of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One.
    One(Rc<[u8]>),
    /// Several.
    Several(Rc<Names>),
}

impl Keys {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Several(names) => names.len(),
        }
    }

    /// Whether there is none, which never happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one with that number.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        match self {
            Self::One(name) => Some(name.as_ref()).filter(|_| at == 0),
            Self::Several(names) => names.get(at),
        }
    }

    /// All of them, in the order of the call.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}
