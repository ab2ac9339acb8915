//! Reads facts about the server: at load, when the server reports a change, and once a second if it reports none.

use super::context::Context;
use super::facts::{Changes, Facts};
use super::module::{module, Module};
use super::settings;
use super::version::Version;
use super::{clock, log};
use crate::lock::effect::Retentions;
use crate::lock::grace;
use crate::lock::record::number;
use crate::lock::retention::Retention;
use crate::lock::time::Micros;
use std::cell::Ref;

/// How old they may be if the server does not report changes.
const AGE: Micros = Micros(1_000_000);

/// `min-replicas-max-lag` if it is 0 (off), or if the operator disabled CONFIG.
const DEFAULT_MAX_LAG_S: u64 = 10;

impl Module {
    /// How long expired locks and holders stay. Under a `volatile-*` policy a key gets no native expiry: it would let
    /// the lock be evicted.
    pub fn retentions(&self, context: &Context) -> Retentions {
        let set = self.settings.retention();
        let key = if self.facts(context).evicts_volatile { Retention::Forever } else { set };
        // An expired holder leaves its set, whether the key has a native expiry or not.
        Retentions { key, holder: set }
    }

    /// `min-replicas-to-write` of the server.
    pub fn min_replicas(&self, context: &Context) -> u64 {
        self.facts(context).min_replicas
    }

    /// The settings of safety across failover; `None` if it is off.
    #[inline]
    pub fn grace(&self, context: &Context) -> Option<grace::Settings> {
        let grace = self.settings.failover_grace();
        if grace == Micros(0) {
            return None;
        }
        Some(self.current_grace(context, grace))
    }

    #[cold]
    fn current_grace(&self, context: &Context, grace: Micros) -> grace::Settings {
        drop(self.facts(context));
        self.known_grace(grace)
    }

    /// The same without asking the server; for INFO.
    pub fn known_grace(&self, grace: Micros) -> grace::Settings {
        let facts = self.facts.borrow();
        let margin = self.settings.terms().margin;
        grace::Settings { grace, margin, max_lag: facts.max_lag, wanted: facts.min_replicas }
    }

    /// Whether the module may subscribe to generic keyspace events.
    pub fn can_be_listened_to(&self) -> bool {
        self.facts.borrow().version.is_some_and(Version::can_be_listened_to)
    }

    /// Whether CLIENT UNBLOCK of a waiter may be allowed.
    pub fn can_be_unblocked(&self) -> bool {
        self.facts.borrow().version.is_some_and(Version::can_be_unblocked)
    }

    /// The facts about the server, not older than [`AGE`].
    #[inline]
    fn facts(&self, context: &Context) -> Ref<'_, Facts> {
        let known = self.facts.borrow();
        if known.look_again.is_none_or(|at| clock::now() < at) {
            return known;
        }
        drop(known);
        read(context, Changes::Silent);
        self.facts.borrow()
    }
}

/// Reads the facts about the server.
pub fn read(context: &Context, changes: Changes) {
    let policy = context.server_info(c"memory", c"maxmemory_policy");
    let setting = |name| context.config(name).and_then(|text| number(text.as_bytes()));
    let min_replicas = setting(c"min-replicas-to-write").unwrap_or(0);
    let max_lag_s = setting(c"min-replicas-max-lag").filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_MAX_LAG_S);
    let max_clients = setting(c"maxclients");
    let max_waiters = module().settings.limits().waiters;
    let want_of_room = max_clients.and_then(|most| settings::want_of_room(max_waiters, most));
    let version = module().facts.borrow().version;
    let facts = Facts {
        version: version.or_else(|| Some(context.version())),
        evicts_volatile: policy.as_ref().is_some_and(|name| name.starts_with("volatile-")),
        evicts_all: policy.as_ref().is_some_and(|name| name.starts_with("allkeys-")),
        min_replicas,
        max_lag: Micros::from_ms(max_lag_s.saturating_mul(1_000)),
        want_of_room: want_of_room.clone(),
        look_again: (changes == Changes::Silent).then(|| clock::now().after(AGE)),
    };
    let evicts_all = facts.evicts_all;
    let before = module().facts.replace(facts);
    if let Some(text) = want_of_room.filter(|text| before.want_of_room.as_ref() != Some(text)) {
        log::warning(&text);
    }
    if evicts_all && !before.evicts_all {
        log::warning("maxmemory-policy evicts any key: an evicted lock is free, even if somebody holds it");
    }
}
