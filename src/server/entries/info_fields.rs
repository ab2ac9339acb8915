//! The `lock` section of the server's INFO. The server prefixes field names with `lock_`.

use crate::driver::Span;
use crate::engine::counters::Counter;
use crate::engine::waits::Histogram;
use crate::engine::Engine;
use crate::lock::time::Micros;
use crate::server::api::api;
use crate::server::api::context::Context;
use crate::server::api::handle::Handle;
use crate::server::clock;
use crate::server::panics::guarded;
use crate::server::state::{module, Module};
use redis_module::raw;
use std::ffi::{CStr, CString};

/// Registers the section.
///
/// # Errors
/// The server did not accept it.
pub fn register(context: &Context) -> Result<(), String> {
    // SAFETY: the context comes from module load, the callback is static.
    match unsafe { (api().register_info_func)(context.as_ptr(), Some(on_info)) } {
        0 => Ok(()),
        _ => Err("the server did not accept the section of INFO".into()),
    }
}

unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, _is_crash_report: libc::c_int) {
    // If the server crashes inside the module, the engine may be borrowed; the section is then left out.
    guarded(|| {
        if let Ok(driver) = module().driver.try_borrow() {
            Section(info).write(module(), driver.engine());
        }
    });
}

struct Section(*mut raw::RedisModuleInfoCtx);

impl Section {
    fn write(&self, module: &Module, engine: &Engine<Handle>) {
        // SAFETY: the info context is valid during the callback, the name is a C string.
        if unsafe { (api().info_add_section)(self.0, c"".as_ptr()) } != 0 {
            return;
        }
        let queues = engine.queues();
        let limits = module.settings.limits();
        let now = clock::now();
        let oldest_wait = queues.oldest_wait().map_or(Micros(0), |since| clock::monotonic().since(since));
        let oldest_hold = queues.oldest_hold(now).map_or(Micros(0), |since| now.since(since));
        self.number(c"waiters", queues.waiters());
        self.number(c"blocked", queues.blocked());
        self.number(c"queued", queues.queued());
        self.number(c"places", queues.places());
        self.number(c"longest_queue", queues.longest_length());
        self.count(c"oldest_wait_ms", oldest_wait.as_ms());
        self.count(c"oldest_hold_ms", oldest_hold.as_ms());
        self.number(c"max_waiters", limits.waiters);
        self.number(c"max_queued", limits.queued);
        self.number(c"sessions", engine.sessions().len());
        for (name, counter) in Counter::ALL {
            self.count(name, engine.counters().get(*counter));
        }
        let (unreplicated, refused) = module.sinks.counts();
        self.count(c"unreplicated_writes", unreplicated);
        self.count(c"replicated_refused", refused);
        let (gate, grace) = (engine.gate_ref(), module.settings.failover_grace());
        let left = if grace == Micros(0) {
            grace
        } else {
            gate.grace_left(&module.facts.known_grace(&module.settings, grace), clock::monotonic())
        };
        self.number(c"eviction_risk", usize::from(module.facts.evicts_all()));
        self.count(c"grace_left_ms", left.as_ms_ceil());
        self.number(c"grace_misconfigured", usize::from(gate.is_misconfigured()));
        self.spans(c"wait_percentiles_usec", module, Span::Wait);
        self.spans(c"hold_percentiles_usec", module, Span::Hold);
        self.histogram(c"wait_histogram_ms", engine.waits().granted());
        self.histogram(c"failed_wait_histogram_ms", engine.waits().failed());
    }

    fn number(&self, name: &CStr, value: usize) {
        self.count(name, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn count(&self, name: &CStr, value: u64) {
        // SAFETY: the info context is valid during the callback, the name is a C string.
        unsafe { (api().info_add_field_u_long_long)(self.0, name.as_ptr(), value) };
    }

    /// Cumulative, like a Prometheus histogram: how many waits took no longer than each bound, and the totals.
    fn histogram(&self, name: &CStr, histogram: &Histogram) {
        const INFINITE: &CStr = c"le_inf";
        const SUM: &CStr = c"sum";
        let buckets: Vec<(CString, u64)> = histogram
            .cumulative()
            .filter_map(|(bound, count)| Some((CString::new(format!("le_{bound}")).ok()?, count)))
            .collect();
        // SAFETY: the info context is valid during the callback, the names are C strings; the server copies them.
        unsafe {
            (api().info_begin_dict_field)(self.0, name.as_ptr());
            for (name, count) in &buckets {
                (api().info_add_field_u_long_long)(self.0, name.as_ptr(), *count);
            }
            (api().info_add_field_u_long_long)(self.0, INFINITE.as_ptr(), histogram.count());
            (api().info_add_field_u_long_long)(self.0, SUM.as_ptr(), histogram.sum().as_ms());
            (api().info_end_dict_field)(self.0);
        }
    }

    /// In the form of the server's latencystats section; omitted if no span was recorded.
    fn spans(&self, name: &CStr, module: &Module, span: Span) {
        const PERCENTILES: [(&CStr, f64); 3] = [(c"p50", 50.0), (c"p99", 99.0), (c"p99.9", 99.9)];
        let spans = module.spans.borrow();
        let of = |percent| spans.as_ref().and_then(|spans| spans.percentile_us(span, percent));
        if of(50.0).is_none() {
            return;
        }
        // SAFETY: the info context is valid during the callback, the names are C strings.
        unsafe {
            (api().info_begin_dict_field)(self.0, name.as_ptr());
            for (name, percent) in PERCENTILES {
                (api().info_add_field_u_long_long)(self.0, name.as_ptr(), of(percent).unwrap_or(0));
            }
            (api().info_end_dict_field)(self.0);
        }
    }
}
