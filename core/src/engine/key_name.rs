//! Borrowed key names.

/// A key on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyName<'n> {
    /// Its database.
    pub db: i32,
    pub name: &'n [u8],
}

impl<'n> KeyName<'n> {
    /// A name that no key has, for use when the engine does not need the name.
    pub const NOBODYS: Self = Self { db: -1, name: &[] };

    #[must_use]
    pub const fn new(db: i32, name: &'n [u8]) -> Self {
        Self { db, name }
    }

    /// The key as a list of one.
    #[must_use]
    pub const fn alone(&self) -> KeyNames<'_> {
        KeyNames { db: self.db, names: std::slice::from_ref(&self.name) }
    }
}

/// Several keys in one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyNames<'n> {
    /// Their database.
    pub db: i32,
    pub names: &'n [&'n [u8]],
}

impl<'n> KeyNames<'n> {
    #[must_use]
    pub const fn new(db: i32, names: &'n [&'n [u8]]) -> Self {
        Self { db, names }
    }

    /// Each key with its database.
    #[must_use]
    pub fn iter(self) -> impl ExactSizeIterator<Item = KeyName<'n>> {
        self.names.iter().map(move |name| KeyName { db: self.db, name })
    }
}
