//! Spans and metrics, as OpenTelemetry's SDK exports them.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serverlock::opentelemetry::Telemetry;
use serverlock::testing::Server;
use serverlock::{AttemptWatch, Cancel, End, Error, Hooks, Kind, Locks, Options, Outcome};
use support::until;

const LEASE: Duration = Duration::from_secs(30);

struct App {
    server: Server,
    spans: InMemorySpanExporter,
    metrics: InMemoryMetricExporter,
    traces: SdkTracerProvider,
    meters: SdkMeterProvider,
}

impl App {
    fn new() -> Self {
        let (spans, metrics) = (InMemorySpanExporter::default(), InMemoryMetricExporter::default());
        Self {
            server: Server::new(),
            traces: SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build(),
            meters: SdkMeterProvider::builder().with_periodic_exporter(metrics.clone()).build(),
            spans,
            metrics,
        }
    }

    fn telemetry(&self) -> Telemetry {
        Telemetry::with_providers(&self.traces, &self.meters)
    }

    fn locks(&self) -> Locks {
        self.server.locks_with_options(Options::new().hooks(self.telemetry().hooks()))
    }

    fn named(&self, name: &str) -> Vec<SpanData> {
        let ended = self.spans.get_finished_spans().unwrap();
        ended.into_iter().filter(|span| span.name == name).collect()
    }

    fn shown(&self, name: &str) -> Vec<String> {
        self.named(name).iter().map(shown).collect()
    }

    /// Each data point: the metric's name and unit, the attributes, the count, and the sum in whole seconds.
    fn measured(&self) -> BTreeSet<String> {
        self.metrics.reset();
        self.meters.force_flush().unwrap();
        let collected = self.metrics.get_finished_metrics().unwrap();
        let metrics = collected.iter().flat_map(ResourceMetrics::scope_metrics).flat_map(ScopeMetrics::metrics);
        let mut found = BTreeSet::new();
        for metric in metrics {
            let name = format!("{} {}", metric.name(), metric.unit());
            match metric.data() {
                AggregatedMetrics::F64(MetricData::Histogram(data)) => {
                    found.extend(data.data_points().map(|point| {
                        format!("{name} {}: {}, {:.0}", texts(point.attributes()), point.count(), point.sum())
                    }));
                }
                AggregatedMetrics::U64(MetricData::Sum(data)) => found
                    .extend(data.data_points().map(|it| format!("{name} {}: {}", texts(it.attributes()), it.value()))),
                AggregatedMetrics::I64(MetricData::Sum(data)) => found
                    .extend(data.data_points().map(|it| format!("{name} {}: {}", texts(it.attributes()), it.value()))),
                other => panic!("{other:?}"),
            }
        }
        found
    }
}

fn texts<'a>(attributes: impl Iterator<Item = &'a opentelemetry::KeyValue>) -> String {
    let all: BTreeSet<String> = attributes.map(|it| format!("{}={}", it.key, it.value)).collect();
    all.into_iter().collect::<Vec<_>>().join(" ")
}

fn shown(span: &SpanData) -> String {
    let status = if matches!(span.status, Status::Error { .. }) { "error" } else { "unset" };
    format!("{:?} {status}: {}", span.span_kind, texts(span.attributes.iter()))
}

fn wait(outcome: &str) -> String {
    format!(
        "Client unset: db.operation.name=LOCK.ACQUIRE db.system.name=redis serverlock.key=report \
         serverlock.outcome={outcome}"
    )
}

fn set(points: &[&str]) -> BTreeSet<String> {
    points.iter().map(|&it| it.to_owned()).collect()
}

#[test]
fn a_wait_and_a_hold_are_children_of_the_callers_span() {
    let app = App::new();
    let locks = app.locks();
    let request = Context::new().with_span(app.traces.tracer("test").start("request"));
    let parent = request.span().span_context().span_id();
    let attached = request.clone().attach();
    let held = locks.lock("report", LEASE).acquire().unwrap();
    drop(attached);
    app.server.clock().advance(Duration::from_secs(7));
    let granted = "serverlock.wait.duration s serverlock.outcome=granted: 1, 0";
    assert_eq!(app.measured(), set(&["serverlock.held {lock} : 1", granted]));
    let token = held.token();
    held.release().unwrap(); // outside of the caller's span
    assert_eq!(app.shown("lock.wait"), [wait("granted")]);
    assert_eq!(
        app.shown("lock.hold"),
        [format!("Internal unset: serverlock.key=report serverlock.outcome=released serverlock.token={token}")]
    );
    for span in app.spans.get_finished_spans().unwrap() {
        assert_eq!(span.parent_span_id, parent, "{}", span.name);
        assert_eq!(span.instrumentation_scope.name(), "serverlock");
        assert_eq!(span.instrumentation_scope.version(), Some(env!("CARGO_PKG_VERSION")));
    }
    let released = "serverlock.hold.duration s serverlock.outcome=released: 1, 7";
    assert_eq!(app.measured(), set(&["serverlock.held {lock} : 0", granted, released]));
}

#[test]
fn a_refusal_a_time_out_and_a_cancelled_attempt_are_not_errors() {
    let app = App::new();
    let (locks, others) = (app.locks(), app.server.locks());
    let _held = others.lock("report", LEASE).acquire().unwrap();
    let report = locks.lock("report", LEASE);
    assert_eq!(report.acquire().unwrap_err().kind(), Kind::Refused);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| report.clone().wait(Duration::from_secs(2)).acquire().unwrap_err().kind());
        app.server.until_waiting("report", 1);
        app.server.clock().advance(Duration::from_secs(3));
        assert_eq!(waiting.join().unwrap(), Kind::Timeout);
    });
    let cancel = Cancel::new();
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| report.clone().wait(Duration::from_secs(9)).acquire_unless(&cancel).unwrap_err().kind());
        app.server.until_waiting("report", 1);
        cancel.cancel();
        assert_eq!(waiting.join().unwrap(), Kind::Cancelled);
    });
    assert_eq!(app.shown("lock.wait"), ["refused", "timeout", "cancelled"].map(wait));
    assert!(app.named("lock.hold").is_empty());
}

#[tokio::test]
async fn an_attempt_whose_future_is_dropped_is_cancelled() {
    let app = App::new();
    let others = app.server.locks();
    let _held = others.lock("report", LEASE).acquire().unwrap();
    let locks = app.server.aio().locks_with_options(Options::new().hooks(app.telemetry().hooks()));
    let report = locks.lock("report", LEASE).wait(Duration::from_secs(60));
    let request = Context::new().with_span(app.traces.tracer("test").start("request"));
    let parent = request.span().span_context().span_id();
    let task = tokio::spawn(opentelemetry::context::FutureExt::with_context(
        async move { report.acquire().await.map(drop) },
        request,
    ));
    while app.server.waiting("report") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    while app.named("lock.wait").is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(app.shown("lock.wait"), [wait("cancelled")]);
    assert_eq!(app.named("lock.wait")[0].parent_span_id, parent);
}

#[test]
fn any_other_failure_is_an_error() {
    let app = App::new();
    app.server.refuse("report");
    assert_eq!(app.locks().lock("report", LEASE).acquire().unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(
        app.shown("lock.wait"),
        ["Client error: db.operation.name=LOCK.ACQUIRE db.system.name=redis error.type=unavailable \
          serverlock.key=report serverlock.outcome=unavailable"]
    );
}

#[test]
fn a_loss_is_an_error_and_an_event_once() {
    let app = App::new();
    let locks = app.locks();
    let held = locks.lock("report", LEASE).acquire().unwrap();
    let token = held.token();
    app.server.lose(&held.watch());
    until("the span has ended", || app.named("lock.hold").len() == 1);
    assert!(held.release().unwrap_err().is_lost());
    assert_eq!(
        app.shown("lock.hold"),
        [format!(
            "Internal error: error.type=lost serverlock.key=report serverlock.outcome=lost serverlock.token={token}"
        )]
    );
    let names: Vec<_> = app.named("lock.hold")[0].events.iter().map(|event| event.name.clone()).collect();
    assert_eq!(names, ["lock.lost"]);
    let points = [
        "serverlock.held {lock} : 0",
        "serverlock.hold.duration s serverlock.outcome=lost: 1, 0",
        "serverlock.losses {loss} : 1",
        "serverlock.wait.duration s serverlock.outcome=granted: 1, 0",
    ];
    assert_eq!(app.measured(), set(&points));
}

#[test]
fn a_loss_that_only_the_release_notices_is_one_too() {
    let app = App::new();
    let locks = app.locks();
    let held = locks.lock("report", LEASE).acquire().unwrap();
    app.server.expire("report");
    assert!(held.release().unwrap_err().is_lost());
    assert!(app.shown("lock.hold")[0].contains("serverlock.outcome=lost"));
    assert!(app.measured().contains("serverlock.losses {loss} : 1"));
}

#[test]
fn dropping_a_held_lock_releases_it() {
    let app = App::new();
    drop(app.locks().lock("report", LEASE).acquire().unwrap());
    assert!(app.shown("lock.hold")[0].contains("serverlock.outcome=released"));
}

#[test]
fn several_keys_are_an_array_and_bytes_are_escaped() {
    let app = App::new();
    let locks = app.locks();
    locks.all_of(["a", "b"], LEASE).acquire().unwrap().release().unwrap();
    let several = &app.shown("lock.wait")[0];
    assert!(several.contains("db.operation.name=LOCK.MACQUIRE"), "{several}");
    assert!(several.contains(r#"serverlock.keys=["a","b"]"#), "{several}");
    locks.lock([0xff, b'a'], LEASE).acquire().unwrap().release().unwrap();
    assert!(app.shown("lock.hold")[1].contains(r"serverlock.key=\xffa"));
}

#[test]
fn metrics_have_the_key_only_on_request() {
    let app = App::new();
    let hooks = app.telemetry().key_attribute().hooks();
    let locks = app.server.locks_with_options(Options::new().hooks(hooks));
    locks.lock("report", LEASE).acquire().unwrap().release().unwrap();
    let points = [
        "serverlock.held {lock} serverlock.key=report: 0",
        "serverlock.hold.duration s serverlock.key=report serverlock.outcome=released: 1, 0",
        "serverlock.wait.duration s serverlock.key=report serverlock.outcome=granted: 1, 0",
    ];
    assert_eq!(app.measured(), set(&points));
}

#[test]
fn a_tick_ends_its_span() {
    let app = App::new();
    let outcome = app.locks().once("report", Duration::from_secs(3600)).run(|_| Ok::<_, Error>(())).unwrap();
    assert!(matches!(outcome, Outcome::Ran(())));
    assert!(app.shown("lock.hold")[0].contains("serverlock.outcome=released"));
    assert_eq!(app.named("lock.hold")[0].span_kind, SpanKind::Internal);
}

#[test]
fn a_panic_in_a_watch_does_not_lose_a_lock() {
    struct Broken;
    impl AttemptWatch for Broken {
        fn granted(&self, _: &str, _: i64, _: Duration) {
            panic!("broken");
        }
        fn ended(&self, _: End, _: Duration, _: Option<&Error>) {
            panic!("broken");
        }
    }
    let hooks = Hooks::new().began(|_| Some(Box::new(Broken)));
    let locks = Arc::new(Server::new()).locks_with_options(Options::new().hooks(hooks));
    locks.lock("report", LEASE).acquire().unwrap().release().unwrap();
}
