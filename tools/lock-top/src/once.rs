//! One snapshot of everything, as text or JSON.

use crate::graph::Graph;
use crate::json;
use crate::lines::{self, ASCII, UNICODE};
use crate::model::{sorted, Server};
use crate::options::Options;
use crate::poll::{Poller, Wish};
use crate::servers::{self, Visit};
use crate::target::Target;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

/// How many queues a single poll reads.
const MOST_DETAILS: usize = 32;
/// How many steps of LOCK.SCAN `--all` takes.
const MOST_STEPS: usize = 200;

/// Returns the output, and whether every server could be asked.
pub fn run(options: &Options, width: usize) -> (String, bool) {
    let (servers, sentinels) = match servers::each(options, |target, _| poll_server(options, target)) {
        Ok(servers) => (servers, None),
        Err(trouble) => (Vec::new(), Some(trouble)),
    };
    let is_whole = sentinels.is_none() && servers.iter().all(|server| server.trouble.is_none());
    let graph = Graph::of(&servers);
    if options.json {
        let mut document = json::document(&servers, &graph, options.by);
        if let (Some(fields), Some(trouble)) = (document.as_object_mut(), sentinels) {
            fields.insert("error".into(), trouble.into());
        }
        return (format!("{document:#}\n"), is_whole);
    }
    let mut out = text(options, &servers, &graph, width);
    if let Some(trouble) = sentinels {
        let _ = writeln!(out, "{trouble}");
    }
    (out, is_whole)
}

fn poll_server(options: &Options, target: Target) -> Visit<Server> {
    let mut poller = Poller::new(target);
    let wish = Wish { by: options.by, count: options.count, all: options.all, selected: None, details: MOST_DETAILS };
    let mut server = poller.poll(&wish);
    let lacks_top = server.notes.iter().any(|note| note.contains("LOCK.TOP"));
    if options.all || lacks_top {
        for _ in 1..MOST_STEPS {
            if server.trouble.is_some() || poller.has_scanned() {
                break;
            }
            // Leaves the server to its clients between two steps.
            thread::sleep(Duration::from_millis(5));
            server = poller.poll(&Wish { details: 0, ..wish.clone() });
        }
        if !poller.has_scanned() && server.trouble.is_none() {
            server.notes.push("the database is large: not all of its keys were inspected".into());
        }
        if server.trouble.is_none() {
            // The scan is done: now read the queues of the locks it found.
            let notes = std::mem::take(&mut server.notes);
            server = poller.poll(&wish);
            server.notes.extend(notes.into_iter().filter(|note| note.starts_with("the database")));
        }
    }
    let members = if options.only || server.trouble.is_some() { None } else { poller.members() };
    Visit { run_id: server.run_id.clone(), found: server, members: members.unwrap_or_default() }
}

fn text(options: &Options, servers: &[Server], graph: &Graph, width: usize) -> String {
    let glyphs = if options.ascii { ASCII } else { UNICODE };
    let mut out = String::new();
    let mut say = |line: &lines::Line| {
        let _ = writeln!(out, "{}", line.text.trim_end());
    };
    lines::servers(servers, width).iter().for_each(&mut say);
    lines::cycles(graph, glyphs).iter().for_each(&mut say);
    let locks = sorted(servers, options.by);
    say(&lines::Line::default());
    if locks.is_empty() {
        let answers = servers.iter().any(|server| server.trouble.is_none());
        let text = match (answers, options.all) {
            (false, _) => return out.trim_end().to_string() + "\n",
            (true, false) => "nobody waits for a lock",
            (true, true) => "no locks",
        };
        say(&lines::Line { text: text.into(), ..lines::Line::default() });
        return out;
    }
    say(&lines::locks_head(servers, width));
    for (at, lock) in &locks {
        say(&lines::lock(lock, *at, servers, width));
    }
    for (at, lock) in locks.iter().filter(|(_, lock)| lock.queue.as_ref().is_some_and(|queue| !queue.is_empty())) {
        let server = servers.get(*at).filter(|_| servers.len() > 1).map(|server| format!(" on {}", server.address));
        say(&lines::Line::default());
        let name = format!("{}{}", lock.name.label(), server.unwrap_or_default());
        say(&lines::Line { text: name, ..lines::Line::default() });
        for (line, _) in lines::queue(lock, width.saturating_sub(2)) {
            say(&lines::Line { text: format!("  {}", line.text), tone: line.tone });
        }
    }
    let rings: BTreeSet<_> =
        graph.cycles.iter().filter_map(|cycle| graph.edge(*cycle.first()?)).map(|edge| edge.to).collect();
    for root in rings {
        say(&lines::Line::default());
        lines::picture(graph, &[root], glyphs, width).iter().for_each(&mut say);
    }
    out
}
