//! The settings, the memory, the histograms and the log.

use super::ServerEdge;
use crate::driver::{Level, Operator, Span};
use crate::engine::Limits;
use crate::lock::change::Retentions;
use crate::lock::terms::Terms;
use crate::lock::time::Micros;
use crate::server::api::api;
use crate::server::log;
use redis_module::raw;

/// Above this fraction of `maxmemory`, nothing new is kept that only the module can free.
const NEARLY_ALL: f32 = 0.95;

impl Operator for ServerEdge<'_> {
    fn terms(&self) -> Terms {
        self.module.settings.terms()
    }

    fn limits(&self) -> Limits {
        self.module.settings.limits()
    }

    fn most_edges(&self) -> usize {
        self.module.settings.deadlock_edges()
    }

    fn retentions(&mut self) -> Retentions {
        self.module.facts.retentions(self.context, &self.module.settings)
    }

    fn is_out_of_memory(&self) -> bool {
        self.context.has_flags(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    fn is_nearly_out_of_memory(&self) -> bool {
        // SAFETY: the function has no arguments.
        unsafe { (api().get_used_memory_ratio)() >= NEARLY_ALL }
    }

    fn record(&mut self, span: Span, took: Micros) {
        if let Some(spans) = self.module.spans.borrow_mut().as_mut() {
            spans.record(span, took);
        }
    }

    fn log(&mut self, level: Level, text: &str) {
        log::log(level, text);
    }
}
