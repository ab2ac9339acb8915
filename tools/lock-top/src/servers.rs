//! The servers that one run asks: those on the command line, or of the Sentinel group, and the masters of their
//! clusters.

use crate::options::Options;
use crate::reply::{bytes, list, number};
use crate::sentinel;
use crate::target::Target;
use redis::Value;
use std::collections::BTreeSet;

/// The result of asking one server.
pub struct Visit<T> {
    pub found: T,
    pub run_id: Option<String>,
    /// The other servers of its cluster.
    pub members: Vec<Target>,
}

/// Visits each server once, under whatever addresses it is known. `visit` gets the run IDs of the servers before it;
/// the result for one of these is dropped. An error says why no Sentinel could be asked.
pub fn each<T>(options: &Options, visit: impl Fn(Target, &BTreeSet<String>) -> Visit<T>) -> Result<Vec<T>, String> {
    let mut queue = match &options.sentinel {
        None => options.targets.clone(),
        Some(name) => sentinel::members(&options.targets, name, &options.login)?,
    };
    queue.reverse();
    let (mut found, mut seen, mut runs) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    while let Some(target) = queue.pop() {
        if !seen.insert(target.address()) {
            continue;
        }
        let visit = visit(target, &runs);
        if visit.run_id.is_none_or(|run_id| runs.insert(run_id)) {
            found.push(visit.found);
        }
        queue.extend(visit.members.into_iter().rev());
    }
    Ok(found)
}

/// The masters in a reply to CLUSTER SLOTS; `None` if there are none.
pub fn masters(slots: &Value, asked: &Target) -> Option<Vec<Target>> {
    let master = |range: &Value| {
        let node = list(list(range)?.get(2)?)?;
        let host = bytes(node.first()?).unwrap_or_default();
        let port = u16::try_from(number(node.get(1)?)?).ok()?;
        Some(asked.neighbour(&String::from_utf8_lossy(&host), port))
    };
    Some(list(slots)?.iter().filter_map(master).collect()).filter(|members: &Vec<_>| !members.is_empty())
}
