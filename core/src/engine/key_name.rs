//! The name of a key.

/// A key of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyName<'n> {
    /// Its database.
    pub db: i32,
    pub name: &'n [u8],
}

impl KeyName<'_> {
    /// A name that no key has, for when nobody asks for it.
    pub const NOBODYS: Self = Self { db: -1, name: &[] };
}
