//! Commands for both servers, with the numbers of connections, keys and tokens filled in, and the replies.

use super::model::steps::{Acquire, Ms};

/// The connection for commands that none of the run's clients send.
pub const CONTROL: u64 = 0;

/// A resolved step, for both servers.
#[derive(Clone, Debug)]
pub enum Command {
    /// LOCK.ACQUIRE or LOCK.MACQUIRE
    Acquire { conn: u64, command: Acquire, several: bool },
    /// LOCK.RECOVER
    Recover { conn: u64, key: u8, lease: Ms, id: Option<u64> },
    /// LOCK.EXTEND or LOCK.MEXTEND
    Extend { token: u64, keys: Vec<u8>, lease: Ms, several: bool },
    /// LOCK.RELEASE
    Release { token: u64, key: u8, result: Option<u8> },
    /// LOCK.MRELEASE
    ReleaseAll { token: u64, keys: Vec<u8> },
    /// LOCK.CHECK
    Check { token: u64, key: u8 },
    /// LOCK.CANCEL
    Cancel { key: u8, id: u64 },
    /// CLIENT KILL
    Kill { conn: u64 },
    /// CLIENT UNBLOCK
    Unblock { conn: u64 },
    /// DEL
    Delete { key: u8 },
    /// SET
    Put { key: u8, value: Vec<u8>, expires_in_ms: Option<Ms> },
    /// RENAME
    Rename { from: u8, to: u8 },
    /// COPY ... REPLACE
    Copy { from: u8, to: u8 },
    /// FLUSHDB
    Flush,
    /// SWAPDB with a database that has the keys in the opposite order.
    Swap,
    /// A plain command reads a key whose native expiry has passed.
    Notice { key: u8 },
}

impl Command {
    /// Whether none of the run's clients sends it.
    pub const fn is_of_control(&self) -> bool {
        !matches!(self, Self::Acquire { .. } | Self::Recover { .. })
    }
}

/// A reply to a client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Received {
    Done,
    Nil,
    Number(i64),
    /// Token, overdue-ms, previous token.
    Details(u64, Option<u64>, Option<u64>),
    /// The holder's result.
    Result(Vec<u8>),
    Error(String),
}

/// A client and its reply.
pub type Answers = Vec<(u64, Received)>;

pub fn name(key: u8) -> Vec<u8> {
    vec![b'a' + key]
}

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    String(String),
    /// Members and their scores, in microseconds.
    Set(Vec<(String, u64)>),
}

/// A waiter in a queue: its connection, its ID, how long it has waited and will still wait, in milliseconds.
pub type Waits = (u64, Option<u64>, u64, u64);

/// The observable state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The key's content, and the milliseconds until it expires.
    pub stored: Option<(Content, Option<u64>)>,
    /// The queue, and the tokens of several holders; `None` if they were not inspected.
    pub full: Option<(Vec<Waits>, Vec<u64>)>,
}
