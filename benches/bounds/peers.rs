//! What the newest comparison with other systems (`make bench-peers`) says about a bound.

use super::list::{Of, MARGIN_S, QUEUED_PEERS};
use crate::measure::median;
use crate::measure::runs::{number, Run};
use std::collections::BTreeSet;

/// A part of the comparison, with one number of clients.
struct Part {
    run: Run,
}

impl Part {
    /// From the newest run that contains it, if that run measured `ours` on the server.
    fn newest(part: &str, clients: &str, ours: &str, server: &str) -> Option<Self> {
        let mut run = Run::newest("peers", "", |row| row["part"] == part && row["clients"] == clients)?;
        // "Jedis 8.0.2; Redis 7.0.15; the module's defaults"
        let measured = run.fact(&format!("system of {ours}")).split("; ").nth(1)?.to_lowercase().replace(' ', "-");
        run.rows.retain(|row| row["part"] == part && row["clients"] == clients);
        (measured == server).then_some(Self { run })
    }

    fn rounds(&self, contender: &str, measure: &str) -> Vec<f64> {
        self.run.rounds(|row| row["contender"] == contender && row["measure"] == measure, |row| number(row, "value"))
    }

    /// Seconds of each hand-off or pair.
    fn times(&self, contender: &str) -> Vec<f64> {
        self.rounds(contender, "per_second").into_iter().map(f64::recip).collect()
    }

    fn contenders(&self) -> BTreeSet<&String> {
        self.run.rows.iter().map(|row| &row["contender"]).collect()
    }
}

/// The rounds with the lowest median.
fn least(all: impl Iterator<Item = Vec<f64>>) -> Option<Vec<f64>> {
    all.filter(|rounds| !rounds.is_empty())
        .min_by(|a, b| median(a.iter().copied()).total_cmp(&median(b.iter().copied())))
}

/// Locks of other projects, reached through a network.
fn is_other(contender: &str) -> bool {
    !contender.starts_with("LOCK.*") && !contender.starts_with("lock.lua") && !contender.contains("one process")
}

/// Our rounds and the peer's, of a bound that the comparison measures.
pub fn rounds(of: Of, server: &str) -> Option<(Vec<f64>, Vec<f64>)> {
    match of {
        Of::FastestPeer(ours) => {
            let hot = Part::newest("hot", "64", ours, server)?;
            let others = hot.contenders().into_iter().filter(|name| is_other(name));
            Some((hot.times(ours), least(others.map(|name| hot.times(name)))?))
        }
        Of::CheapestQueue(ours) => {
            let hot = Part::newest("hot", "64", ours, server)?;
            let others = QUEUED_PEERS.iter().map(|name| hot.rounds(name, "server_us"));
            Some((hot.rounds(ours, "server_us"), least(others)?))
        }
        Of::SameClient(ours, theirs) => {
            let pair = Part::newest("pair", "1", ours, server)?;
            // The median: a few slow pairs, while other work runs, would decide the mean.
            Some((pair.rounds(ours, "p50_ms"), pair.rounds(theirs, "p50_ms")))
        }
        Of::KilledHolder(ours) => {
            let killed = Part::newest("killed", "1", ours, server)?;
            let seconds = killed.rounds(ours, "seconds");
            let margin = vec![MARGIN_S; seconds.len()];
            Some((seconds, margin))
        }
        _ => None,
    }
}
