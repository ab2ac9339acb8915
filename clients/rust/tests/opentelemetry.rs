//! The OpenTelemetry hooks example counts lock events on a real server.

#![cfg(feature = "blocking")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

#[path = "../../../examples/rust/opentelemetry_hooks.rs"]
mod opentelemetry_hooks;
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use serverlock::{Kind, Locks, Options};
use support::{Server, until};

const LEASE: Duration = Duration::from_secs(30);

#[test]
fn the_example_counts_waits_holds_and_losses() {
    let exporter = InMemoryMetricExporter::default();
    let meters = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let server = Server::start();
    let options = Options::new().hooks(opentelemetry_hooks::hooks(&meters.meter("test")));
    let locks = Locks::with_options(server.client(), options);
    let report = locks.lock("report", LEASE);
    let held = report.acquire().unwrap();
    assert_eq!(report.acquire().unwrap_err().kind(), Kind::Refused);
    assert_eq!(report.wait(Duration::from_millis(20)).acquire().unwrap_err().kind(), Kind::Timeout);
    held.release().unwrap();
    let lost = locks.lock("lost", LEASE).acquire().unwrap();
    server.call::<()>(&["DEL", "lost"]);
    assert!(lost.verify().unwrap_err().is_lost());
    assert!(lost.release().unwrap_err().is_lost());
    let expected: BTreeSet<String> = [
        "lock.wait.duration granted 2",
        "lock.wait.duration Refused 1",
        "lock.wait.duration Timeout 1",
        "lock.hold.duration in_time 1",
        "lock.hold.duration too_late 1",
        "lock.lost 1",
    ]
    .map(str::to_owned)
    .into();
    // A loss is reported on another thread.
    until("all events are counted", || {
        exporter.reset();
        meters.force_flush().unwrap();
        recorded(&exporter.get_finished_metrics().unwrap()) == expected
    });
}

fn recorded(collected: &[ResourceMetrics]) -> BTreeSet<String> {
    let metrics = collected.iter().flat_map(ResourceMetrics::scope_metrics).flat_map(ScopeMetrics::metrics);
    let mut found = BTreeSet::new();
    for metric in metrics {
        match metric.data() {
            AggregatedMetrics::F64(MetricData::Histogram(data)) => found.extend(data.data_points().map(|point| {
                let outcome = point.attributes().next().unwrap().value.as_str().into_owned();
                format!("{} {outcome} {}", metric.name(), point.count())
            })),
            AggregatedMetrics::U64(MetricData::Sum(data)) => {
                found.extend(data.data_points().map(|point| format!("{} {}", metric.name(), point.value())));
            }
            other => panic!("{other:?}"),
        }
    }
    found
}
