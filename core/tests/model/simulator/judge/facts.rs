//! The judge's input: who asks, a server's clocks and settings, and why something may change.

use super::super::steps::Share;
use crate::fake::OwnedKeyName;
use redis_lock_core::lock::retention::Retention;

/// A caller, as the judge sees it; times in microseconds.
#[derive(Clone, Debug)]
pub struct Asked {
    pub conn: u64,
    pub places: Vec<OwnedKeyName>,
    pub share: Share,
    pub lease: u64,
    pub wait: u64,
    pub id: Option<u64>,
    pub session: bool,
    /// Its channel, if it waits without a connection.
    pub notify: Option<u8>,
    /// Whether it takes the holder's result instead of the lock.
    pub wants_result: bool,
}

/// A server's clocks and settings when it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// In microseconds since 1970.
    pub wall: u64,
    pub monotonic: u64,
    pub margin: u64,
    pub retention: Retention,
    pub place: u64,
    /// How long a grant can be claimed.
    pub claim: u64,
    /// How long a new master grants nothing.
    pub grace: u64,
    /// Whether all places are kept, because there is room for them.
    pub keeps_places: bool,
    /// The longest lease that may be granted; `None` means any.
    pub longest_lease: Option<u64>,
}

/// A token, and a key of its grant.
pub type Grant = (u64, OwnedKeyName);

/// The predecessor of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    Token(u64),
    /// A client of the classic pattern.
    Classic,
}

/// Why grants may end or leases change in one entry from the server.
#[derive(Clone, Debug, Default)]
pub struct Cause {
    /// Grants that the caller gives up.
    pub ended: Vec<Grant>,
    /// A grant that the caller extends.
    pub extended: Option<u64>,
    /// The ID with which the caller asks for a lock.
    pub asks: Option<u64>,
    /// The ID that the caller cancels.
    pub cancels: Option<u64>,
    /// The channel whose attempts the caller cancels.
    pub cancels_channel: Option<u8>,
    /// The key in whose queue the caller cancels.
    pub at: Option<OwnedKeyName>,
    /// The grant that the caller gets.
    pub granted: Option<u64>,
}

impl Cause {
    /// Whether the cause is a command, not the timer.
    pub(super) fn is_a_command(&self) -> bool {
        let ends = !self.ended.is_empty() || self.cancels.is_some() || self.cancels_channel.is_some();
        ends || self.asks.is_some() || self.extended.is_some()
    }
}
