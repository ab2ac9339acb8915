//! Shared by both forms for a storm and a census: when an attempt is cancelled, the outcomes of all attempts, and what
//! is left.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use serverlock::{Error, Kind};

use crate::order::{Failure, Order, cannot};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
const TOGETHER: f64 = 0.005;

/// Between 0 and 1.
fn dice() -> f64 {
    let number = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(number >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

pub(crate) struct Storm {
    keys: Vec<String>,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    pub(crate) at_once: u64,
    /// Each attempt asks for the value of its key.
    pub(crate) flies: bool,
    within: Duration,
    left: AtomicUsize,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    granted: usize,
    cancelled: usize,
    refused: usize,
    failed: Vec<String>,
}

impl Storm {
    pub(crate) fn of(order: &Order) -> Result<Self, Failure> {
        let number = |name: &str| order.get(name).as_u64().ok_or_else(|| cannot(format!("{name} is not a number")));
        let keys = order.get("among").as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Self {
            keys: keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect(),
            lease: order.span("lease_ms")?,
            wait: order.span_or("wait_ms", Duration::ZERO)?,
            at_once: number("at_once")?,
            flies: order.is("single_flight"),
            within: order.span("within_ms")?,
            left: AtomicUsize::new(usize::try_from(number("attempts")?).unwrap_or(0)),
            tally: Mutex::default(),
        })
    }

    /// The key of the next attempt, and when to cancel it; `None` once there have been enough.
    pub(crate) fn next(&self) -> Option<(String, Instant)> {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).ok()?;
        let number = usize::try_from(RandomState::new().build_hasher().finish()).unwrap_or(0);
        let key = self.keys.get(number.checked_rem(self.keys.len())?)?.clone();
        let mut at = START.elapsed().as_secs_f64() + self.within.as_secs_f64() * dice().powi(3);
        if dice() < 0.25 {
            at = (at / TOGETHER).ceil() * TOGETHER; // together with others
        }
        Some((key, START.checked_add(Duration::from_secs_f64(at))?))
    }

    /// Counts an outcome; `None` if the attempt was cancelled.
    pub(crate) fn count(&self, outcome: Option<Result<(), Error>>) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match outcome {
            Some(Ok(())) => &mut tally.granted,
            None => &mut tally.cancelled,
            Some(Err(error)) => match error.kind() {
                Kind::Cancelled => &mut tally.cancelled,
                Kind::Refused | Kind::Timeout => &mut tally.refused,
                _ => return tally.failed.push(error.to_string()),
            },
        };
        *place = place.saturating_add(1);
    }

    pub(crate) fn tally(&self) -> Value {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let failed: Vec<_> = tally.failed.iter().take(10).collect();
        json!({"granted": tally.granted, "cancelled": tally.cancelled, "refused": tally.refused, "failed": failed})
    }
}

/// Counts for all managers together, and for the process. The driver's own tasks are not counted.
pub(crate) fn census(managers: impl Iterator<Item = Vec<(&'static str, usize)>>, own_tasks: usize) -> Value {
    let mut counts = serde_json::Map::new();
    for (name, count) in managers.flatten() {
        let before = counts.get(name).and_then(Value::as_u64).unwrap_or(0);
        let count = u64::try_from(count).unwrap_or(0);
        // All managers share a runtime.
        let now = if name == "tasks" { count } else { before.saturating_add(count) };
        counts.insert(name.to_owned(), json!(now));
    }
    if let Some(tasks) = counts.get_mut("tasks") {
        *tasks = json!(tasks.as_u64().unwrap_or(0).saturating_sub(u64::try_from(own_tasks).unwrap_or(0)));
    }
    counts.insert("threads".to_owned(), json!(std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)));
    Value::Object(counts)
}
