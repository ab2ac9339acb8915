//! The section `lock` of the server's INFO. Field names get the prefix `lock_` from the server.

use super::api::api;
use super::callback::guarded;
use super::context::Context;
use super::state::{self, State};
use super::stats::{Counter, Spans};
use redis_module::raw;
use std::ffi::CStr;

/// Registers the section.
///
/// # Errors
/// The server did not accept it.
pub fn register(context: &Context) -> Result<(), String> {
    // SAFETY: the context is that of the load, the callback is static.
    match unsafe { (api().register_info_func)(context.as_ptr(), Some(on_info)) } {
        0 => Ok(()),
        _ => Err("the server did not accept the section of INFO".into()),
    }
}

unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, _is_crash_report: libc::c_int) {
    // While the server crashes in the middle of the module, the state may be lent: nothing is said then.
    guarded(|| {
        let _ = state::with(|state| Section(info).write(state));
    });
}

/// The open section.
struct Section(*mut raw::RedisModuleInfoCtx);

impl Section {
    fn write(&self, state: &State) {
        // SAFETY: the info context is valid during the callback, the name is a C string.
        if unsafe { (api().info_add_section)(self.0, c"".as_ptr()) } != 0 {
            return;
        }
        let longest = state.queues.longest(1).first().map_or(0, |line| line.2);
        self.number(c"waiters", state.queues.waiters());
        self.number(c"places", state.queues.places());
        self.number(c"longest_queue", longest);
        self.number(c"sessions", state.sessions.len());
        for (name, counter) in Counter::ALL {
            self.count(name, state.stats.get(counter));
        }
        self.number(c"eviction_risk", usize::from(state.can_be_evicted()));
        self.count(c"grace_left_ms", state.grace_left().as_ms_ceil());
        self.number(c"grace_misconfigured", usize::from(state.grace_fault.is_some()));
        self.spans(c"wait_percentiles_usec", &state.stats.waits);
        self.spans(c"hold_percentiles_usec", &state.stats.holds);
    }

    fn number(&self, name: &CStr, value: usize) {
        self.count(name, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn count(&self, name: &CStr, value: u64) {
        // SAFETY: the info context is valid during the callback, the name is a C string.
        unsafe { (api().info_add_field_u_long_long)(self.0, name.as_ptr(), value) };
    }

    /// As the section latencystats of the server shows them; nothing where nothing was recorded.
    fn spans(&self, name: &CStr, spans: &Spans) {
        const PERCENTILES: [(&CStr, f64); 3] = [(c"p50", 50.0), (c"p99", 99.0), (c"p99.9", 99.9)];
        if spans.percentile_us(50.0).is_none() {
            return;
        }
        // SAFETY: the info context is valid during the callback, the names are C strings.
        unsafe {
            (api().info_begin_dict_field)(self.0, name.as_ptr());
            for (name, percent) in PERCENTILES {
                let value = spans.percentile_us(percent).unwrap_or(0);
                (api().info_add_field_u_long_long)(self.0, name.as_ptr(), value);
            }
            (api().info_end_dict_field)(self.0);
        }
    }
}
