//! Histograms of how long locks were held and waited for, for the percentiles in INFO.

use crate::driver::Span;
use crate::lock::time::Micros;
use hdrhistogram::Histogram;

/// A day in µs: longer spans count as a day.
const LONGEST_US: u64 = 86_400_000_000;

/// The durations of all spans.
pub struct Spans {
    waits: Histogram<u64>,
    holds: Histogram<u64>,
}

impl Spans {
    /// Creates empty histograms. Two significant digits up to a day take about 20 KB each.
    #[must_use]
    pub fn new() -> Option<Self> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_US, 2).ok();
        Some(Self { waits: histogram()?, holds: histogram()? })
    }

    pub fn record(&mut self, span: Span, took: Micros) {
        let histogram = match span {
            Span::Wait => &mut self.waits,
            Span::Hold => &mut self.holds,
        };
        histogram.saturating_record(took.0.clamp(1, LONGEST_US));
    }

    pub fn reset(&mut self) {
        self.waits.reset();
        self.holds.reset();
    }

    /// The duration in µs that `percent` percent of the spans did not exceed; `None` if there were none.
    #[must_use]
    pub fn percentile_us(&self, span: Span, percent: f64) -> Option<u64> {
        let histogram = match span {
            Span::Wait => &self.waits,
            Span::Hold => &self.holds,
        };
        (!histogram.is_empty()).then(|| histogram.value_at_percentile(percent))
    }
}
