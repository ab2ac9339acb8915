//! The settings, the memory, the recorded spans and the log.

use super::super::Mutant;
use super::FakeEdge;
use redis_lock_core::driver::{Level, Operator, Span};
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::change::Retentions;
use redis_lock_core::lock::terms::Terms;
use redis_lock_core::lock::time::Micros;

impl Operator for FakeEdge<'_> {
    fn terms(&self) -> Terms {
        let margin = if self.has(Mutant::NoMargin) { Micros(0) } else { self.settings().margin };
        Terms { margin }
    }

    fn limits(&self) -> Limits {
        let limits = self.settings().limits;
        let place = if self.has(Mutant::ForgetsPlaces) { Micros(0) } else { limits.place };
        Limits { place, ..limits }
    }

    fn most_edges(&self) -> usize {
        self.settings().edges
    }

    fn retentions(&mut self) -> Retentions {
        let retention = self.settings().retention;
        Retentions { key: retention, holder: retention }
    }

    fn is_out_of_memory(&self) -> bool {
        self.node.world.borrow().is_out_of_memory
    }

    fn record(&mut self, span: Span, took: Micros) {
        self.node.world.borrow_mut().spans.push((span, took));
    }

    fn log(&mut self, _level: Level, text: &str) {
        self.node.world.borrow_mut().log.push(text.into());
    }
}
