//! OpenTelemetry's spans and metrics of locks, with the feature `opentelemetry`:
//! `Options::new().hooks(Telemetry::new().hooks())`.
//!
//! The span `lock.wait` lasts from the call to its result, and the span `lock.hold` from the grant to its end. Their
//! parent is the span of the context that is current when the lock is requested. If the lock is lost, `lock.hold` has
//! an error and the event `lock.lost`. It is not an error if somebody else has the lock, or if the caller gives up.
//!
//! The histograms `serverlock.wait.duration` and `serverlock.hold.duration` are in seconds. The counter
//! `serverlock.losses` counts lost locks; `serverlock.held` is how many locks are held now.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ::opentelemetry::global::{self, BoxedSpan, BoxedTracer};
use ::opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider, UpDownCounter};
use ::opentelemetry::trace::{Span, SpanKind, Status, Tracer, TracerProvider};
use ::opentelemetry::{Array, Context, InstrumentationScope, KeyValue, StringValue, Value};

use crate::error::Error;
use crate::options::Hooks;
use crate::sync::locked;
use crate::watch::{AttemptWatch, End};

/// Seconds: the default ones suit milliseconds.
const BOUNDARIES: [f64; 18] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0];

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("serverlock").with_version(env!("CARGO_PKG_VERSION")).build()
}

/// Where spans and metrics go, and what they show.
#[derive(Debug)]
pub struct Telemetry {
    tracer: BoxedTracer,
    meter: Meter,
    has_keys: bool,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

impl Telemetry {
    /// Uses the global providers: set them before.
    #[must_use]
    pub fn new() -> Self {
        Self { tracer: global::tracer_with_scope(scope()), meter: global::meter_with_scope(scope()), has_keys: false }
    }

    /// Uses these providers.
    #[must_use]
    pub fn with_providers<P>(traces: &P, meters: &impl MeterProvider) -> Self
    where
        P: TracerProvider<Tracer: Tracer<Span: Send + Sync + 'static> + Send + Sync + 'static>,
    {
        Self {
            tracer: BoxedTracer::new(Box::new(traces.tracer_with_scope(scope()))),
            meter: meters.meter_with_scope(scope()),
            has_keys: false,
        }
    }

    /// Adds the key to the attributes of metrics. Use this only if there are few keys. Spans always have it.
    #[must_use]
    pub fn key_attribute(mut self) -> Self {
        self.has_keys = true;
        self
    }

    /// Hooks that export spans and metrics. Any number of managers may share them.
    #[must_use]
    pub fn hooks(self) -> Hooks {
        let instruments = Arc::new(Instruments::new(self));
        Hooks::new().began(move |keys| Some(Box::new(Trace::begin(&instruments, keys)) as _))
    }
}

struct Instruments {
    tracer: BoxedTracer,
    waits: Histogram<f64>,
    holds: Histogram<f64>,
    losses: Counter<u64>,
    held: UpDownCounter<i64>,
    has_keys: bool,
}

impl Instruments {
    fn new(telemetry: Telemetry) -> Self {
        let Telemetry { tracer, meter, has_keys } = telemetry;
        let seconds = |name: &'static str, description: &'static str| {
            let builder = meter.f64_histogram(name).with_unit("s").with_description(description);
            builder.with_boundaries(BOUNDARIES.to_vec()).build()
        };
        Self {
            tracer,
            waits: seconds("serverlock.wait.duration", "How long attempts to get a lock took"),
            holds: seconds("serverlock.hold.duration", "How long locks were held"),
            losses: meter
                .u64_counter("serverlock.losses")
                .with_unit("{loss}")
                .with_description("Locks that were lost while they were held")
                .build(),
            held: meter
                .i64_up_down_counter("serverlock.held")
                .with_unit("{lock}")
                .with_description("Locks that are held")
                .build(),
            has_keys,
        }
    }
}

/// One attempt, and its hold.
struct Trace {
    instruments: Arc<Instruments>,
    parent: Context,
    key: KeyValue,
    wait: Mutex<BoxedSpan>,
    hold: OnceLock<Mutex<BoxedSpan>>,
}

impl Trace {
    fn begin(instruments: &Arc<Instruments>, keys: &[&[u8]]) -> Self {
        let key = key_of(keys);
        let parent = Context::current();
        let attributes = [key.clone(), KeyValue::new("db.system.name", "redis")];
        let builder =
            instruments.tracer.span_builder("lock.wait").with_kind(SpanKind::Client).with_attributes(attributes);
        let wait = Mutex::new(builder.start_with_context(&instruments.tracer, &parent));
        Self { instruments: Arc::clone(instruments), parent, key, wait, hold: OnceLock::new() }
    }

    fn end_wait(&self, command: &str, waited: Duration, outcome: &'static str) {
        let mut wait = locked(&self.wait);
        wait.set_attribute(KeyValue::new("db.operation.name", command.to_owned()));
        wait.set_attribute(outcome_of(outcome));
        wait.end();
        self.instruments.waits.record(waited.as_secs_f64(), &self.labels(Some(outcome)));
    }

    fn labels(&self, outcome: Option<&'static str>) -> Vec<KeyValue> {
        let key = self.instruments.has_keys.then(|| self.key.clone());
        outcome.map(outcome_of).into_iter().chain(key).collect()
    }
}

impl AttemptWatch for Trace {
    fn granted(&self, command: &str, token: i64, waited: Duration) {
        self.end_wait(command, waited, "granted");
        let attributes = [self.key.clone(), KeyValue::new("serverlock.token", token)];
        let tracer = &self.instruments.tracer;
        let builder = tracer.span_builder("lock.hold").with_kind(SpanKind::Internal).with_attributes(attributes);
        _ = self.hold.set(Mutex::new(builder.start_with_context(tracer, &self.parent)));
        self.instruments.held.add(1, &self.labels(None));
    }

    fn failed(&self, command: &str, waited: Duration, error: &Error) {
        let code = error.code();
        if !matches!(code, "refused" | "timeout" | "cancelled") {
            fail(&mut locked(&self.wait), code, error);
        }
        self.end_wait(command, waited, code);
    }

    fn result(&self, command: &str, waited: Duration) {
        self.end_wait(command, waited, "result");
    }

    fn ended(&self, end: End, held: Duration, lost: Option<&Error>) {
        let Some(hold) = self.hold.get() else { return };
        let mut hold = locked(hold);
        hold.set_attribute(outcome_of(end.code()));
        if let Some(lost) = lost {
            hold.add_event("lock.lost", Vec::new());
            fail(&mut hold, end.code(), lost);
            self.instruments.losses.add(1, &self.labels(None));
        }
        self.instruments.held.add(-1, &self.labels(None));
        self.instruments.holds.record(held.as_secs_f64(), &self.labels(Some(end.code())));
        hold.end(); // last: what waits for the span finds the metrics
    }
}

fn fail(span: &mut BoxedSpan, kind: &'static str, error: &Error) {
    span.set_attribute(KeyValue::new("error.type", kind));
    span.set_status(Status::error(error.to_string()));
}

fn outcome_of(outcome: &'static str) -> KeyValue {
    KeyValue::new("serverlock.outcome", outcome)
}

/// Bytes that are not UTF-8 are escaped.
fn key_of(keys: &[&[u8]]) -> KeyValue {
    let shown = |key: &&[u8]| match std::str::from_utf8(key) {
        Ok(text) => text.to_owned(),
        Err(_) => key.escape_ascii().to_string(),
    };
    match keys {
        [key] => KeyValue::new("serverlock.key", shown(key)),
        keys => {
            let keys: Vec<StringValue> = keys.iter().map(|key| shown(key).into()).collect();
            KeyValue::new("serverlock.keys", Value::Array(Array::String(keys)))
        }
    }
}
