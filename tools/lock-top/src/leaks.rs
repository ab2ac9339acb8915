//! `--held-for`: the locks that have been held for a long time, as text, as JSON, or as metrics for Prometheus.

use crate::held::{self, Hold, Sample};
use crate::options::Options;
use crate::text::{time, word};
use crate::{json, servers};
use std::fmt::Write as _;
use std::time::Duration;

/// No such lock; at least one; a server could not be asked.
const NONE: u8 = 0;
const SOME: u8 = 1;
pub const FAILED: u8 = 2;

/// Returns the output and the exit status.
pub fn run(options: &Options, held_for: Duration) -> (String, u8) {
    let visit = |target, known: &_| held::sample(target, held_for, options.only, known);
    let samples = servers::each(options, visit).unwrap_or_else(|trouble| {
        let group = options.sentinel.as_deref().unwrap_or_default();
        vec![Sample::without(group, trouble)]
    });
    let status = if !samples.iter().all(Sample::is_known) {
        FAILED
    } else if samples.iter().any(|sample| sample.too_long > 0) {
        SOME
    } else {
        NONE
    };
    let text = if options.metrics {
        metrics(&samples, held_for)
    } else if options.json {
        format!("{:#}\n", json::held(&samples, &sorted(&samples)))
    } else {
        text(&samples, held_for)
    };
    (text, status)
}

/// The holds of all servers, oldest first.
fn sorted(samples: &[Sample]) -> Vec<(&Sample, &Hold)> {
    let mut holds: Vec<_> =
        samples.iter().flat_map(|sample| sample.holds.iter().map(move |hold| (sample, hold))).collect();
    holds.sort_by_key(|(_, hold)| hold.holder.token);
    holds
}

fn text(samples: &[Sample], held_for: Duration) -> String {
    let limit = time(u64::try_from(held_for.as_millis()).unwrap_or(u64::MAX));
    let mut out = String::new();
    for sample in samples {
        let address = word(sample.address.as_bytes());
        let _ = match &sample.trouble {
            Some(trouble) => writeln!(out, "{address}: {trouble}"),
            None if sample.is_replica() => writeln!(out, "{address}:"),
            None => {
                let oldest = sample.oldest_ms().map_or_else(String::new, |ms| format!(", the oldest for {}", time(ms)));
                let (held, too_long) = (sample.held, sample.too_long);
                writeln!(out, "{address}: {held} held, {too_long} of them for at least {limit}{oldest}")
            }
        };
        for note in &sample.notes {
            let _ = writeln!(out, "  {note}");
        }
        if sample.unknown > 0 {
            let _ = writeln!(out, "  {} of unknown age: their tokens are not the times of grants", sample.unknown);
        }
    }
    let holds = sorted(samples);
    if holds.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\n{:>6}  {:16}  LOCK", "HELD", "TOKEN");
    for (sample, hold) in holds {
        let age = time(hold.holder.held_ms.unwrap_or_default());
        let token = hold.holder.token.unwrap_or_default();
        let server = if samples.len() > 1 { format!(" on {}", sample.address) } else { String::new() };
        let _ =
            writeln!(out, "{age:>6}  {token:16}  {}{server} by {}", hold.name.label(), hold.holder.who.long_label());
    }
    out
}

type Value = fn(&Sample) -> String;

/// Each metric: its name, what it is, and its value.
const METRICS: [(&str, &str, Value); 4] = [
    ("lock_held", "Locks that are held", |sample| sample.held.to_string()),
    ("lock_held_for_too_long", "Locks that have been held for at least SECONDS s", |sample| {
        sample.too_long.to_string()
    }),
    ("lock_oldest_held_seconds", "Age of the oldest grant; 0 without one", |sample| {
        let ms = sample.oldest_ms().unwrap_or_default();
        format!("{}.{:03}", ms / 1_000, ms % 1_000)
    }),
    ("lock_held_of_unknown_age", "Locks that are held, and whose token is not the time of a grant", |sample| {
        sample.unknown.to_string()
    }),
];

/// The text format of Prometheus. Its size depends only on the number of servers.
fn metrics(samples: &[Sample], held_for: Duration) -> String {
    let mut out = String::new();
    let mut metric = |name: &str, help: &str, values: &[(&Sample, String)]| {
        let _ = writeln!(out, "# HELP {name} {help}.\n# TYPE {name} gauge");
        for (sample, value) in values {
            let _ = writeln!(out, "{name}{{server=\"{}\"}} {value}", label(&sample.address));
        }
    };
    let masters = || samples.iter().filter(|sample| !sample.is_replica());
    let sampled = |sample| (sample, u8::from(Sample::is_known(sample)).to_string());
    metric("lock_sampled", "Whether the server could be sampled", &masters().map(sampled).collect::<Vec<_>>());
    for (name, help, value) in METRICS {
        let help = help.replace("SECONDS", &held_for.as_secs().to_string());
        let values = masters().filter(|sample| sample.is_known()).map(|sample| (sample, value(sample)));
        metric(name, &help, &values.collect::<Vec<_>>());
    }
    out
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_bounded_and_their_labels_escaped() {
        let odd = Sample { address: "/tmp/a\"b\\c\n".into(), held: 3, ..Sample::default() };
        let replica = Sample { address: "h:2".into(), role: Some("slave".into()), ..Sample::default() };
        let text = metrics(&[odd, Sample::without("h:1", "gone".into()), replica], Duration::from_secs(3_600));
        assert!(text.contains("lock_held{server=\"/tmp/a\\\"b\\\\c\\n\"} 3\n"), "{text}");
        assert!(text.contains("lock_sampled{server=\"h:1\"} 0\n") && !text.contains("lock_held{server=\"h:1\"}"));
        assert!(!text.contains("h:2") && text.contains("at least 3600 s.\n"), "{text}");
    }
}
