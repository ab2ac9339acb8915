//! The kinds of locks. A promise that holds for all kinds is one test, with a row for each kind.

use std::fmt::Debug;
use testkit::Conn;

/// How a lock is taken: exclusively, shared by any number, by two at most, or as one of two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Alone,
    Shared,
    Limit,
    Several,
}

pub const KINDS: [Kind; 4] = [Kind::Alone, Kind::Shared, Kind::Limit, Kind::Several];

impl Kind {
    /// `k`, and for several keys also `l`.
    pub const fn keys(self) -> &'static [&'static str] {
        if matches!(self, Self::Several) {
            &["k", "l"]
        } else {
            &["k"]
        }
    }

    /// A command on its keys: `LOCK.` and the name; for several keys with an M and their number.
    pub fn command<'a>(self, name: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        let plain: &[&str] = match (self, name) {
            (Self::Several, "ACQUIRE") => &["LOCK.MACQUIRE", "2"],
            (Self::Several, "EXTEND") => &["LOCK.MEXTEND", "2"],
            (Self::Several, "RELEASE") => &["LOCK.MRELEASE", "2"],
            (_, "ACQUIRE") => &["LOCK.ACQUIRE"],
            (_, "EXTEND") => &["LOCK.EXTEND"],
            (_, "RELEASE") => &["LOCK.RELEASE"],
            _ => panic!("no command {name}"),
        };
        [plain, self.keys(), args].concat()
    }

    /// The command that takes the lock, with these options, which include a lease.
    pub fn acquire<'a>(self, options: &[&'a str]) -> Vec<&'a str> {
        let share: &[&str] = match self {
            Self::Alone | Self::Several => &[],
            Self::Shared => &["SHARED"],
            Self::Limit => &["LIMIT", "2"],
        };
        self.command("ACQUIRE", &[options, share].concat())
    }

    /// Takes the lock. Returns the token.
    pub fn take(self, conn: &mut Conn, options: &[&str]) -> String {
        conn.int(&self.acquire(options)).to_string()
    }

    /// Releases it, with all of its keys.
    #[track_caller]
    pub fn release(self, conn: &mut Conn, token: &str) {
        let released = conn.int(&self.command("RELEASE", &[token]));
        assert_eq!(usize::try_from(released), Ok(self.keys().len()), "{self:?}");
    }

    /// The number of its keys that exist.
    pub fn exist(self, conn: &mut Conn) -> i64 {
        conn.int(&[&["EXISTS"], self.keys()].concat())
    }
}

/// LOCK.ACQUIRE. Returns the token.
pub fn acquire(conn: &mut Conn, args: &[&str]) -> String {
    conn.int(&[&["LOCK.ACQUIRE"], args].concat()).to_string()
}

/// LOCK.MACQUIRE. Returns the token.
pub fn acquire_all(conn: &mut Conn, keys: &[&str], args: &[&str]) -> String {
    conn.int(&[&["LOCK.MACQUIRE", &keys.len().to_string()], keys, args].concat()).to_string()
}

/// Prints the row in which a test panics, if it does so before this is dropped.
pub struct Row(String);

impl Row {
    pub fn of(row: impl Debug) -> Self {
        Self(format!("{row:?}"))
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- in the row {}", self.0);
        }
    }
}
