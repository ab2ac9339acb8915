//! Server stalls. A claim that waits in a socket during a stall counts as in time.

use super::Claims;
use crate::lock::time::{Micros, MonotonicMicros};

/// The recent turns of the event loop in which the timer ran, for unclaimed grants. A server reads its sockets and then
/// runs its timers; after SIGCONT it runs its timers first. A server with I/O threads executes commands one turn after
/// it reads them, and since Redis 8 those threads do not wait for each other's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Turns {
    /// The last turns, the latest first.
    pub(super) last: [MonotonicMicros; 2],
    /// When the server was last seen running.
    seen: MonotonicMicros,
    /// When stalls were noticed, the latest first.
    stalls: [MonotonicMicros; 2],
}

/// A turn shorter than this is not a stall: most servers tick every 100 ms.
const SHORTEST_STALL: Micros = Micros(300_000);

/// How long no grant ends after a stall: on a busy machine, I/O threads need a while until they have read the sockets.
const READING: Micros = Micros(300_000);

/// The longest turn that is not a stall: a third of the time for a claim, but at least one and a half server ticks.
fn longest_turn(claim: Micros, tick: Micros) -> Micros {
    Micros(claim.0 / 3).max(Micros(tick.0.saturating_mul(3) / 2)).max(SHORTEST_STALL)
}

impl Claims {
    /// Notes whether the server, running at `now` and ticking every `tick`, had stalled.
    pub fn seen(&mut self, now: MonotonicMicros, claim: Micros, tick: Micros) {
        let longest = longest_turn(claim, tick);
        if self.turns.seen > MonotonicMicros(0) && now.since(self.turns.seen) > longest {
            self.turns.stalls = [now, self.turns.stalls[0]];
        }
        self.turns.seen = now;
    }

    /// Called when the timer runs at `now`, in a new turn. Deadlines up to the result have expired, because two turns
    /// have read the sockets since then. While they are being read after a stall, only those before an earlier stall
    /// have: a server that stalls all the time ends grants too.
    pub fn begin_turn(&mut self, now: MonotonicMicros, claim: Micros, tick: Micros) -> MonotonicMicros {
        self.seen(now, claim, tick);
        let [last, before] = self.turns.last;
        self.turns.last = [now, last];
        let [_, earlier] = self.turns.stalls;
        if now < self.turns.reads_until() {
            before.min(earlier)
        } else {
            before
        }
    }

    /// Whether the server stalled before it could read a claim that was sent by `deadline`.
    #[must_use]
    pub fn stalled_after(&self, deadline: MonotonicMicros) -> bool {
        self.turns.stalls[0] >= deadline
    }
}

impl Turns {
    /// Until when the sockets are being read after the last stall, if there was one.
    pub(super) fn reads_until(self) -> MonotonicMicros {
        let [stalled, _] = self.stalls;
        if stalled > MonotonicMicros(0) {
            stalled.after(READING)
        } else {
            stalled
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Micros = Micros(100_000);

    #[test]
    fn after_a_stall_turns_alone_end_nothing() {
        const CLAIM: Micros = Micros(600_000);
        let mut claims = Claims::default();
        let begun = MonotonicMicros(5_000_000);
        claims.begin_turn(begun, CLAIM, TICK);
        assert_eq!(claims.begin_turn(begun.after(TICK), CLAIM, TICK), MonotonicMicros(0));
        assert_eq!(claims.begin_turn(begun.after(Micros(2 * TICK.0)), CLAIM, TICK), begun, "no stall");
        let stalled = begun.after(Micros::from_ms(1_000));
        let turns = [0, 1, 2, 299].map(|ms| claims.begin_turn(stalled.after(Micros::from_ms(ms)), CLAIM, TICK));
        assert_eq!(turns, [MonotonicMicros(0); 4], "nothing has expired");
        let expired = claims.begin_turn(stalled.after(READING), CLAIM, TICK);
        assert_eq!(expired, stalled.after(Micros::from_ms(2)), "two turns earlier");
    }

    #[test]
    fn a_server_that_stalls_all_the_time_ends_grants_too() {
        const CLAIM: Micros = Micros(600_000);
        let mut claims = Claims::default();
        let begun = MonotonicMicros(5_000_000);
        let turns = (0..5).map(|n| claims.begin_turn(begun.after(Micros::from_ms(700 * n)), CLAIM, TICK));
        assert!(turns.last() >= Some(begun), "a deadline at the beginning has expired");
    }

    #[test]
    fn a_server_tick_is_not_a_stall_however_rare_it_is() {
        const CLAIM: Micros = Micros(600_000);
        for (tick_ms, gap_ms, is_stall) in [
            (100, 300, false),
            (100, 301, true),
            (200, 300, false),
            (200, 301, true),
            (500, 750, false),
            (500, 751, true),
            (1_000, 1_500, false),
            (1_000, 1_501, true),
        ] {
            let [tick, gap] = [tick_ms, gap_ms].map(Micros::from_ms);
            let mut claims = Claims::default();
            let begun = MonotonicMicros(5_000_000);
            // The first turn after the start has no turn before it.
            claims.begin_turn(begun, CLAIM, tick);
            assert!(!claims.stalled_after(MonotonicMicros(1)), "{tick_ms}");
            claims.seen(begun.after(gap), CLAIM, tick);
            assert_eq!(claims.stalled_after(begun), is_stall, "{tick_ms} {gap_ms}");
        }
        // If the time for a claim is long, a third of it is the limit.
        assert_eq!(longest_turn(Micros(6_000_000), Micros(100_000)), Micros(2_000_000));
    }
}
