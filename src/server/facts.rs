//! The module's knowledge of the server: its version, and those of its settings that matter to locks.

use super::version::Version;
use crate::lock::time::{Micros, UnixMicros};

/// The module's knowledge of the server.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Which server it is.
    pub version: Option<Version>,
    /// `maxmemory-policy` evicts keys that have a native expiry, and only those.
    pub(super) evicts_volatile: bool,
    /// `maxmemory-policy` evicts any key: locks can be evicted to free memory.
    pub evicts_all: bool,
    /// `min-replicas-to-write`.
    pub(super) min_replicas: u64,
    /// `min-replicas-max-lag`
    pub(super) max_lag: Micros,
    /// The fault in the limit of waiters that was last logged.
    pub(super) want_of_room: Option<String>,
    /// When to read them again; `None` if the server reports changes.
    pub(super) look_again: Option<UnixMicros>,
}

/// How the server reports changes of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// With an event.
    Told,
    /// Not at all.
    Silent,
}
