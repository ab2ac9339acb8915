//! The clocks, and the timer.

use super::ServerEdge;
use crate::driver::Time;
use crate::lock::clocks::Reading;
use crate::lock::time::UnixMicros;
use crate::server::api::api;
use crate::server::api::handle::TimerId;
use crate::server::clock::{self, ServerClock};

impl Time for ServerEdge<'_> {
    type Clock = ServerClock;
    type TimerId = TimerId;

    fn clock(&self) -> ServerClock {
        ServerClock
    }

    fn command_time(&self) -> UnixMicros {
        clock::of_command()
    }

    fn reading(&self) -> Reading {
        clock::all()
    }

    fn set_timer(&mut self, after_ms: u64) -> TimerId {
        let after = i64::try_from(after_ms).unwrap_or(i64::MAX);
        let fire = self.module.callbacks.get().and_then(|callbacks| callbacks.timer);
        // SAFETY: the context is valid; the callback is static and takes no data.
        TimerId(unsafe { (api().create_timer)(self.context.as_ptr(), after, fire, std::ptr::null_mut()) })
    }

    fn stop_timer(&mut self, timer: TimerId) {
        // SAFETY: the context is valid; the server reports an error if it no longer knows the timer.
        unsafe { (api().stop_timer)(self.context.as_ptr(), timer.0, std::ptr::null_mut()) };
    }
}
