//! Facts about the server that matter to locks: its version, and some of its settings. They are read at load, when the
//! server reports a change, and once a second if it reports none.

pub mod resets;
pub mod version;

use crate::lock::change::Retentions;
use crate::lock::grace;
use crate::lock::record::number;
use crate::lock::retention::Retention;
use crate::lock::time::{Micros, UnixMicros};
use crate::server::api::context::Context;
use crate::server::settings::{self, Settings};
use crate::server::{clock, log};
use std::cell::{Ref, RefCell};
use version::Version;

/// How old the facts may be if the server does not report changes.
const AGE: Micros = Micros(1_000_000);

/// Used for `min-replicas-max-lag` if that is 0 (off) or the operator disabled CONFIG.
const DEFAULT_MAX_LAG_S: u64 = 10;

/// The facts as last read.
#[derive(Default)]
pub struct Facts(RefCell<Known>);

#[derive(Default)]
struct Known {
    version: Option<Version>,
    /// Whether `maxmemory-policy` evicts keys that have a native expiry, and only those.
    evicts_volatile: bool,
    /// Whether `maxmemory-policy` evicts any key, so that locks can be evicted to free memory.
    evicts_all: bool,
    /// `min-replicas-to-write`
    min_replicas: u64,
    /// `min-replicas-max-lag`
    max_lag: Micros,
    /// The last warning about the limit on waiters.
    want_of_room: Option<String>,
    /// When to read them again; `None` if the server reports changes.
    read_again_at: Option<UnixMicros>,
}

/// How the server reports changes to its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// With an event.
    Reported,
    /// Not at all.
    Unreported,
}

impl Facts {
    /// How long expired locks and holders stay. Under a `volatile-*` policy a key gets no native expiry, which would
    /// let the lock be evicted.
    pub fn retentions(&self, context: &Context, settings: &Settings) -> Retentions {
        let set = settings.retention();
        let key = if self.current(context, settings).evicts_volatile { Retention::Forever } else { set };
        // An expired holder leaves its set whether or not the key has a native expiry.
        Retentions { key, holder: set }
    }

    /// The server's `min-replicas-to-write`.
    pub fn min_replicas(&self, context: &Context, settings: &Settings) -> u64 {
        self.current(context, settings).min_replicas
    }

    /// The settings for safety across failover; `None` if no grace is set.
    #[inline]
    pub fn grace(&self, context: &Context, settings: &Settings) -> Option<grace::Settings> {
        let grace = settings.failover_grace();
        if grace == Micros(0) {
            return None;
        }
        Some(self.current_grace(context, settings, grace))
    }

    #[cold]
    fn current_grace(&self, context: &Context, settings: &Settings, grace: Micros) -> grace::Settings {
        drop(self.current(context, settings));
        self.known_grace(settings, grace)
    }

    /// Like [`Self::grace`], without asking the server; for INFO.
    pub fn known_grace(&self, settings: &Settings, grace: Micros) -> grace::Settings {
        let known = self.0.borrow();
        let margin = settings.terms().margin;
        grace::Settings { grace, margin, max_lag: known.max_lag, wanted: known.min_replicas }
    }

    /// Whether locks can be evicted to free memory.
    pub fn evicts_all(&self) -> bool {
        self.0.borrow().evicts_all
    }

    /// Whether the module may subscribe to generic keyspace events.
    pub fn has_safe_key_events(&self) -> bool {
        self.0.borrow().version.is_some_and(Version::has_safe_key_events)
    }

    /// Whether CLIENT UNBLOCK of a waiter may be allowed.
    pub fn can_be_unblocked(&self) -> bool {
        self.0.borrow().version.is_some_and(Version::can_be_unblocked)
    }

    /// The facts, no older than [`AGE`].
    #[inline]
    fn current(&self, context: &Context, settings: &Settings) -> Ref<'_, Known> {
        let known = self.0.borrow();
        if known.read_again_at.is_none_or(|at| clock::now() < at) {
            return known;
        }
        drop(known);
        self.read(context, settings, Changes::Unreported);
        self.0.borrow()
    }

    /// Reads the facts.
    pub fn read(&self, context: &Context, settings: &Settings, changes: Changes) {
        let policy = context.server_info(c"memory", c"maxmemory_policy");
        let setting = |name| context.config(name).and_then(|text| number(text.as_bytes()));
        let min_replicas = setting(c"min-replicas-to-write").unwrap_or(0);
        let max_lag_s = setting(c"min-replicas-max-lag").filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_MAX_LAG_S);
        let max_clients = setting(c"maxclients");
        let max_waiters = settings.limits().waiters;
        let want_of_room = max_clients.and_then(|most| settings::want_of_room(max_waiters, most));
        let version = self.0.borrow().version;
        let evicts_all = policy.as_ref().is_some_and(|name| name.starts_with("allkeys-"));
        let before = self.0.replace(Known {
            version: version.or_else(|| Some(Version::of(context))),
            evicts_volatile: policy.as_ref().is_some_and(|name| name.starts_with("volatile-")),
            evicts_all,
            min_replicas,
            max_lag: Micros::from_ms(max_lag_s.saturating_mul(1_000)),
            want_of_room: want_of_room.clone(),
            read_again_at: (changes == Changes::Unreported).then(|| clock::now().after(AGE)),
        });
        if let Some(text) = want_of_room.filter(|text| before.want_of_room.as_ref() != Some(text)) {
            log::warning(&text);
        }
        if evicts_all && !before.evicts_all {
            log::warning("maxmemory-policy evicts any key: an evicted lock is free, even if somebody holds it");
        }
    }

    /// Forgets the facts, because the module is unloaded.
    pub fn forget(&self) {
        self.0.take();
    }
}
