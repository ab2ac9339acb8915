//! The operator's settings. `configure.rs` applies them.

pub mod configure;

use crate::engine::Limits;
use crate::lock::retention::Retention;
use crate::lock::terms::Terms;
use crate::lock::time::Micros;
use crate::server::api::api;
use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::CStr;

/// A whole number that an operator can set.
pub struct Setting {
    pub(in crate::server) name: &'static CStr,
    pub(in crate::server) default: i64,
    pub(in crate::server) min: i64,
    pub(in crate::server) max: i64,
    pub(in crate::server) value: Cell<i64>,
}

impl Setting {
    const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Self {
        Self { name, default, min, max, value: Cell::new(default) }
    }

    fn get_unsigned(&self) -> u64 {
        u64::try_from(self.value.get()).unwrap_or(0)
    }

    fn get_count(&self) -> usize {
        usize::try_from(self.value.get()).unwrap_or(0)
    }

    fn get_ms(&self) -> Micros {
        Micros::from_ms(self.get_unsigned())
    }
}

const HOUR_MS: i64 = 3_600_000;
/// The smallest `hz` means one tick per second. Before the first tick, nothing else is known.
const RAREST_TICK: Micros = Micros(1_000_000);
const TEN_YEARS_MS: i64 = 315_360_000_000;

pub struct Settings {
    margin: Setting,
    retention: Setting,
    max_waiters: Setting,
    place: Setting,
    max_queued: Setting,
    claim: Setting,
    result: Setting,
    deadlock_edges: Setting,
    grace: Setting,
    /// How long the server sleeps between two ticks, as of the last tick.
    tick: Cell<Micros>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            margin: Setting::new(c"margin-ms", 1_000, 0, HOUR_MS),
            retention: Setting::new(c"retention-ms", 60_000, -1, TEN_YEARS_MS),
            // Half of the default `maxclients`: the other half is for holders and operators.
            max_waiters: Setting::new(c"max-waiters", 5_000, 0, 1_000_000),
            place: Setting::new(c"place-ms", 10_000, 0, HOUR_MS),
            max_queued: Setting::new(c"max-queued", 100_000, 0, 2_000_000),
            claim: Setting::new(c"claim-ms", 2_000, 1, HOUR_MS),
            result: Setting::new(c"result-max", 65_536, 1, 1 << 20),
            deadlock_edges: Setting::new(c"deadlock-edges", 10_000, 0, 1_000_000),
            grace: Setting::new(c"failover-grace-ms", 0, 0, 24 * HOUR_MS),
            tick: Cell::new(RAREST_TICK),
        }
    }
}

impl Settings {
    /// All settings, in the order of the documentation.
    pub(in crate::server) const fn all(&self) -> [&Setting; 9] {
        // Without `..`, so that the compiler reports a setting forgotten here.
        let Self { margin, retention, max_waiters, place, max_queued, claim, result, deadlock_edges, grace, tick: _ } =
            self;
        [margin, retention, max_waiters, place, max_queued, claim, result, deadlock_edges, grace]
    }

    /// The settings of the lock rules.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms { margin: self.margin.get_ms() }
    }

    /// How long an expired lock stays.
    #[must_use]
    pub fn retention(&self) -> Retention {
        u64::try_from(self.retention.value.get()).map_or(Retention::Forever, Retention::Ms)
    }

    /// The settings of the queue.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            waiters: self.max_waiters.get_count(),
            queued: self.max_queued.get_count(),
            claim: self.claim.get_ms(),
            result: self.result.get_count(),
            place: self.place.get_ms(),
            tick: self.tick.get(),
        }
    }

    /// Notes that the server ticks `hz` times a second.
    pub fn set_hz(&self, hz: u32) {
        self.tick.set(RAREST_TICK.0.checked_div(u64::from(hz)).map_or(RAREST_TICK, Micros));
    }

    /// How many edges of the wait graph a search for a deadlock may inspect.
    #[must_use]
    pub fn deadlock_edges(&self) -> usize {
        self.deadlock_edges.get_count()
    }

    /// How long a new master grants nothing.
    #[must_use]
    #[inline]
    pub fn failover_grace(&self) -> Micros {
        if self.grace.value.get() == 0 {
            return Micros(0);
        }
        self.grace.get_ms()
    }

    fn changed(&self) -> impl Iterator<Item = &Setting> {
        self.all().into_iter().filter(|setting| setting.value.get() != setting.default)
    }

    /// Whether a setting is not at its default.
    #[must_use]
    pub fn are_changed(&self) -> bool {
        self.changed().next().is_some()
    }

    /// The command that loads the module into a running server with the settings in force.
    #[must_use]
    pub fn load_command(&self) -> String {
        load_command_with(self.changed().map(|setting| (setting.name.to_string_lossy(), setting.value.get())))
    }

    /// Like [`Self::load_command`], with an example of a setting.
    #[must_use]
    pub fn load_command_for_example(&self) -> String {
        load_command_with([(self.grace.name.to_string_lossy(), 20_000)].into_iter())
    }
}

/// The warning for an operator when waiting clients may take almost all connections that the server accepts: a holder
/// might be unable to connect to release its lock, and BUSYLOCKS would come too late.
#[must_use]
pub fn want_of_room(max_waiters: usize, max_clients: u64) -> Option<String> {
    let max_waiters = u64::try_from(max_waiters).unwrap_or(u64::MAX);
    let left = max_clients.saturating_sub(max_waiters);
    (left < max_clients.div_ceil(LEFT_FOR_OTHERS)).then(|| {
        format!(
            "lock.max-waiters {max_waiters} leaves {left} of maxclients {max_clients} for clients that do not wait, \
             less than a tenth: when that many wait, nobody else can connect. Lower max-waiters or raise maxclients"
        )
    })
}

/// At least one in this many connections must remain for others.
const LEFT_FOR_OTHERS: u64 = 10;

fn load_command_with<'a>(given: impl Iterator<Item = (Cow<'a, str>, i64)>) -> String {
    // Before 7.0 a server has no configuration for modules.
    let has_config = api().register_numeric_config.is_some();
    let first = if has_config { "MODULE LOADEX path" } else { "MODULE LOAD path" };
    let prefix = if has_config { "CONFIG lock." } else { "" };
    given.fold(first.into(), |command, (name, value)| format!("{command} {prefix}{name} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_all_connections_is_left_for_others() {
        for (max_waiters, max_clients) in [(5_000, 10_000), (9_000, 10_000), (0, 1), (900, 1_000), (9, 10), (0, 0)] {
            assert_eq!(want_of_room(max_waiters, max_clients), None, "{max_waiters} of {max_clients}");
        }
        for (max_waiters, max_clients) in [(9_001, 10_000), (10_000, 10_000), (1_000_000, 10_000), (5_000, 992), (1, 1)]
        {
            assert!(want_of_room(max_waiters, max_clients).is_some(), "{max_waiters} of {max_clients}");
        }
        let defaults = want_of_room(Settings::default().limits().waiters, 10_000);
        assert_eq!(defaults, None, "the server's default");
    }
}
