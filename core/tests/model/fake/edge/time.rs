//! Clocks that only a test moves, and the timer.

use super::super::Mutant;
use super::{FakeClock, FakeEdge};
use redis_lock_core::driver::Time;
use redis_lock_core::lock::clocks::Reading;
use redis_lock_core::lock::time::{MonotonicMicros, UnixMicros};

impl Time for FakeEdge<'_> {
    type Clock = FakeClock;
    type TimerId = u64;

    fn clock(&self) -> FakeClock {
        let world = self.node.world.borrow();
        FakeClock(world.wall, world.monotonic)
    }

    fn command_time(&self) -> UnixMicros {
        self.node.world.borrow().wall
    }

    fn reading(&self) -> Reading {
        let world = self.node.world.borrow();
        let awake = MonotonicMicros(world.monotonic.0 - world.suspended.0);
        Reading { wall: world.wall, monotonic: world.monotonic, awake }
    }

    fn set_timer(&mut self, after_ms: u64) -> u64 {
        let mut world = self.node.world.borrow_mut();
        assert_eq!(world.timer, None, "there is one timer");
        assert!(after_ms < 2_147_000, "the event loop of a real server would not sleep");
        world.timers += 1;
        // A server rounds its own time down, and the delay was rounded up.
        let is_forgotten = world.settings.mutant == Mutant::ForgetsDueTimes && after_ms > 0;
        let after_ms = if is_forgotten { 86_400_000 } else { after_ms };
        world.timer = Some((world.timers, world.wall.0 / 1_000 + after_ms));
        world.timers
    }

    fn stop_timer(&mut self, timer: u64) {
        self.node.world.borrow_mut().timer.take_if(|(id, _)| *id == timer);
    }
}
