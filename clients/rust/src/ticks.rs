//! Numbers the ticks of a period on the server's clock. Pure: the caller passes the time, counted from the beginning of
//! 1970.
//!
//! A tick begins at a multiple of the period. Its window is the time that is nearer to it than to any other tick: it
//! begins and ends half a period before and after the tick.

use std::time::Duration;

pub(crate) const LEAST_PERIOD: Duration = Duration::from_secs(10);
/// How much later than its window's end a kept lease may end: twice `MOST_DOUBT`, plus the time to reach the server.
const SLACK: Duration = Duration::from_secs(1);

const NANOS: u128 = 1_000_000_000;

/// The nearest tick. Halfway between two, it is the later one, because the earlier one's window has ended.
pub(crate) fn tick_at(server_now: Duration, period: Duration) -> u64 {
    let tick = server_now.saturating_add(period / 2).as_nanos().checked_div(period.as_nanos());
    tick.and_then(|tick| u64::try_from(tick).ok()).unwrap_or(u64::MAX)
}

/// When the tick's window begins.
pub(crate) fn window_begins(tick: u64, period: Duration) -> Duration {
    let nanos = u128::from(tick).saturating_mul(period.as_nanos());
    let (seconds, nanos) = (u64::try_from(nanos / NANOS), u32::try_from(nanos % NANOS));
    Duration::new(seconds.unwrap_or(u64::MAX), nanos.unwrap_or(0)).saturating_sub(period / 2)
}

/// When the tick's window ends.
pub(crate) fn window_ends(tick: u64, period: Duration) -> Duration {
    window_begins(tick.saturating_add(1), period)
}

/// Whether a lease that expired then was that of a process that died within this window. The lease of a tick that has
/// run expires when its window ends, which is when the next window begins.
pub(crate) fn is_recovery(expired: Duration, tick: u64, period: Duration) -> bool {
    expired > window_begins(tick, period).saturating_add(SLACK)
}

/// Short enough that another process may still run the tick if one dies soon after the tick begins.
pub(crate) fn default_lease(period: Duration) -> Duration {
    Duration::from_secs(10).min(period / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// A tick of each of the periods.
    const START: Duration = Duration::from_secs(1_799_971_200);
    const PERIODS: [Duration; 5] = [
        Duration::from_secs(10),
        Duration::from_millis(12_500),
        Duration::from_secs(60),
        Duration::from_secs(3600),
        Duration::from_secs(86_400),
    ];

    fn first(period: Duration) -> u64 {
        u64::try_from(START.as_nanos().checked_div(period.as_nanos()).unwrap()).unwrap()
    }

    #[test]
    fn a_time_belongs_to_the_nearest_tick() {
        for period in PERIODS {
            let (tick, half) = (first(period), period / 2);
            for (server_now, meant) in [
                (START, tick),
                (START.saturating_sub(half), tick),
                (START.saturating_sub(half + MS), tick - 1),
                (START.saturating_sub(half) + MS, tick),
                (START + half.saturating_sub(MS), tick),
                (START + half, tick + 1),
            ] {
                assert_eq!(tick_at(server_now, period), meant, "{period:?}: {server_now:?}");
            }
        }
        assert_eq!(tick_at(Duration::ZERO, LEAST_PERIOD), 0);
        assert_eq!(tick_at(START, Duration::ZERO), u64::MAX, "no such period is accepted");
    }

    #[test]
    fn windows_follow_each_other() {
        for period in PERIODS {
            let tick = first(period);
            assert_eq!(window_begins(tick, period), START.saturating_sub(period / 2));
            for tick in [tick, tick + 1] {
                assert_eq!(window_ends(tick, period), window_begins(tick + 1, period));
                assert_eq!(window_begins(tick, period) + period, window_ends(tick, period));
                assert_eq!(tick_at(window_begins(tick, period), period), tick);
                assert_eq!(tick_at(window_ends(tick, period), period), tick + 1);
            }
        }
    }

    #[test]
    fn the_ordinary_end_of_the_last_tick_is_not_a_crash() {
        for period in PERIODS {
            let (tick, begins) = (first(period), START.saturating_sub(period / 2));
            for (expired, is_crash) in [
                (begins.saturating_sub(period), false),
                (begins, false),
                (begins + SLACK, false),
                (begins + SLACK + MS, true),
                (START, true),
            ] {
                assert_eq!(is_recovery(expired, tick, period), is_crash, "{period:?}: {expired:?}");
            }
        }
    }

    #[test]
    fn the_default_lease_leaves_time_to_run_the_tick_again() {
        for (period, lease) in [(10, 2500), (40, 10_000), (86_400, 10_000)] {
            assert_eq!(default_lease(Duration::from_secs(period)), MS * lease);
        }
    }
}
