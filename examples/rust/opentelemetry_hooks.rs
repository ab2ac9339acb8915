//! Locks as OpenTelemetry metrics: `Options::new().hooks(hooks(&meter))`. Needs the opentelemetry crate.

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use serverlock::Hooks;

/// Keys are not among the attributes, because there can be any number of them.
pub fn hooks(meter: &Meter) -> Hooks {
    let waited = meter.f64_histogram("lock.wait.duration").with_unit("s").build();
    let failed = waited.clone();
    let held = meter.f64_histogram("lock.hold.duration").with_unit("s").build();
    let lost = meter.u64_counter("lock.lost").build();
    let outcome = |name: String| [KeyValue::new("lock.outcome", name)];
    Hooks::new()
        .granted(move |_, span| waited.record(span.as_secs_f64(), &outcome("granted".into())))
        .refused(move |_, span, error| failed.record(span.as_secs_f64(), &outcome(format!("{:?}", error.kind()))))
        .lost(move |_, _, _| lost.add(1, &[]))
        .released(move |_, span, in_time| {
            let name = if in_time { "in_time" } else { "too_late" };
            held.record(span.as_secs_f64(), &outcome(name.into()));
        })
}
