//! The parts of the view as lines of text of a given width: the same in the terminal and for `--once`.

use crate::graph::{Graph, Node};
use crate::model::{Holder, Lock, Party, Server, Waiter};
use crate::text::{cut, left, right, show, time, time_or_dash, width};
use std::fmt::Write as _;

/// The kind of a line, which the terminal shows by colour or weight. It is never the only sign of anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Head,
    Bad,
    Dim,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub tone: Tone,
}

impl Line {
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::new(Tone::Plain, text)
    }
}

/// The characters that trees are drawn with.
#[derive(Clone, Copy, Debug)]
pub struct Glyphs {
    branch: &'static str,
    last: &'static str,
    down: &'static str,
    gap: &'static str,
    arrow: &'static str,
}

pub const UNICODE: Glyphs = Glyphs { branch: "├─ ", last: "└─ ", down: "│  ", gap: "   ", arrow: "─▶" };
pub const ASCII: Glyphs = Glyphs { branch: "|- ", last: "`- ", down: "|  ", gap: "   ", arrow: "->" };

/// How many waiters for the same client a picture shows.
const MOST_BRANCHES: usize = 8;
/// How many lines a picture has.
const MOST_LINES: usize = 200;

/// A table of all servers: limits, rates, grace. Problems follow each server, in lines that are not cut.
pub fn servers(servers: &[Server], cells: usize) -> Vec<Line> {
    let first = cells.saturating_sub(59).clamp(14, 40);
    let row = |columns: [&str; 7]| {
        let [address, role, waiters, queued, grants, hand_offs, timeouts] = columns;
        format!(
            "{} {} {} {} {} {} {}",
            left(address, first),
            left(role, 7),
            right(waiters, 11),
            right(queued, 13),
            right(grants, 7),
            right(hand_offs, 9),
            right(timeouts, 6)
        )
    };
    let head = ["SERVER", "ROLE", "BLOCKED", "NOTIFY", "GRANT/S", "HANDOFF/S", "TOUT/S"];
    let mut lines = vec![Line::new(Tone::Head, cut(&row(head), cells))];
    for server in servers {
        if let Some(trouble) = &server.trouble {
            lines.push(Line::new(Tone::Bad, format!("{}: {trouble}", server.address)));
            continue;
        }
        let queued = server.info.number("lock_queued");
        // `lock_waiters` counts both kinds; the limit applies to blocked ones only.
        let blocked = server.info.number("lock_waiters").map(|all| all.saturating_sub(queued.unwrap_or(0)));
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1}"));
        let numbers = [
            of_limit(blocked, server.max_waiters),
            of_limit(queued, server.max_queued),
            rate(server.rates.map(|rates| rates.grants)),
            rate(server.rates.map(|rates| rates.hand_offs)),
            rate(server.rates.map(|rates| rates.timeouts)),
        ];
        let [blocked, queued, grants, hand_offs, timeouts] = &numbers;
        let role = server.role.as_deref().map_or("-", |role| if role == "slave" { "replica" } else { role });
        let columns = [&server.address, role, blocked, queued, grants, hand_offs, timeouts];
        lines.push(Line::plain(cut(&row(columns), cells)));
        lines.extend(remarks(server).into_iter().map(|(tone, text)| Line::new(tone, format!("  {text}"))));
    }
    lines
}

/// `3/5000`
fn of_limit(number: Option<u64>, limit: Option<u64>) -> String {
    match (number, limit) {
        (None, _) => "-".into(),
        (Some(number), None) => number.to_string(),
        (Some(number), Some(limit)) => format!("{number}/{limit}"),
    }
}

/// The grace, a limit that is nearly reached, and what this user may not see.
fn remarks(server: &Server) -> Vec<(Tone, String)> {
    let mut out = Vec::new();
    let left = server.info.number("lock_grace_left_ms").unwrap_or(0);
    if left > 0 {
        let whole = server.grace_ms.map_or(String::new(), |whole| format!(" of {}", time(whole)));
        out.push((Tone::Bad, format!("grace: grants nothing for another {}{whole}", time(left))));
    } else if let Some(grace) = server.grace_ms {
        let text =
            if grace == 0 { "grace: off".into() } else { format!("grace: {} after a start or promotion", time(grace)) };
        out.push((Tone::Dim, text));
    }
    if server.info.number("lock_grace_misconfigured") == Some(1) {
        out.push((Tone::Bad, "grace: does not protect; the server's log says why".into()));
    }
    out.extend(server.notes.iter().map(|note| (Tone::Bad, note.clone())));
    out
}

/// Widths of the columns of the table of locks.
struct Columns {
    key: usize,
    holder: usize,
    server: usize,
}

impl Columns {
    /// The other columns and the gaps take 34 cells.
    fn of(servers: &[Server], cells: usize) -> Self {
        let server = if servers.len() > 1 {
            servers.iter().map(|server| width(&server.address)).max().unwrap_or(0).min(21)
        } else {
            0
        };
        let left = cells.saturating_sub(34).saturating_sub(if server > 0 { server.saturating_add(1) } else { 0 });
        let key = left.saturating_mul(2).checked_div(5).unwrap_or(0).max(8);
        Self { key, holder: left.saturating_sub(key).max(8), server }
    }

    fn row(&self, columns: [&str; 7]) -> String {
        let [key, state, waiters, oldest, held, holder, server] = columns;
        let first = format!(
            "{} {} {} {} {}",
            left(key, self.key),
            left(state, 7),
            right(waiters, 7),
            right(oldest, 7),
            right(held, 7)
        );
        let end = if self.server > 0 { format!(" {}", left(server, self.server)) } else { String::new() };
        format!("{first}  {}{end}", left(holder, self.holder))
    }
}

pub fn locks_head(servers: &[Server], cells: usize) -> Line {
    let head = Columns::of(servers, cells).row(["LOCK", "STATE", "WAITERS", "OLDEST", "HELD", "HOLDER", "SERVER"]);
    Line::new(Tone::Head, cut(&head, cells))
}

/// A lock as a row of the table.
pub fn lock(lock: &Lock, at: usize, servers: &[Server], cells: usize) -> Line {
    let waiters = lock.waiters.map_or_else(|| "-".into(), |waiters| waiters.to_string());
    let server = servers.get(at).map_or("", |server| server.address.as_str());
    let text = Columns::of(servers, cells).row([
        &lock.name.label(),
        lock.state.as_deref().unwrap_or("-"),
        &waiters,
        &time_or_dash(lock.oldest_wait_ms),
        &time_or_dash(lock.held_ms),
        &lock.holder_label(),
        server,
    ]);
    Line::plain(cut(&text, cells))
}

/// A row below the table that an action can apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row<'a> {
    Holder(&'a Holder),
    Waiter(&'a Waiter),
    None,
}

/// A waiter's remaining time, as far as the server knows. A blocked client with an ID may wait in pieces; the server
/// knows the current piece only, so the client may wait longer.
fn waiter_left(waiter: &Waiter) -> String {
    let may_go_on = waiter.left_ms.is_some() && waiter.id.is_some() && waiter.channel.is_none();
    format!("{}{}", time_or_dash(waiter.left_ms), if may_go_on { "+" } else { "" })
}

/// The selected lock: its holders, then its queue.
pub fn queue(lock: &Lock, cells: usize) -> Vec<(Line, Row<'_>)> {
    let mut out = Vec::new();
    for holder in &lock.holders {
        let text = format!("{} {}", holder_times(holder), holder.who.long_label());
        out.push((Line::plain(cut(&text, cells)), Row::Holder(holder)));
    }
    if lock.holders.is_empty() {
        let text =
            if lock.is_foreign() { "held by another program: the value is not a lock" } else { "nobody holds it" };
        out.push((Line::new(Tone::Dim, cut(text, cells)), Row::None));
    }
    let Some(queue) = &lock.queue else {
        out.push((Line::new(Tone::Dim, cut("the queue is not known", cells)), Row::None));
        return out;
    };
    if queue.is_empty() {
        out.push((Line::new(Tone::Dim, cut("nobody waits", cells)), Row::None));
        return out;
    }
    let row = |columns: [&str; 6]| {
        let [place, who, from, waited, left_ms, id] = columns;
        let wide = cells.saturating_sub(64).clamp(12, 40);
        format!(
            "{} {} {} {} {}  {}",
            right(place, 4),
            left(who, wide),
            left(from, 21),
            right(waited, 7),
            right(left_ms, 7),
            left(id, 19)
        )
    };
    let head = row(["LINE", "CLIENT", "ADDRESS", "WAITED", "LEFT", "ID"]);
    out.push((Line::new(Tone::Head, cut(&head, cells)), Row::None));
    for (place, waiter) in (1_usize..).zip(queue) {
        let channel = waiter.channel.as_ref().map(|channel| format!("via {}", show(channel)));
        let from = channel.or_else(|| waiter.who.addr.clone()).unwrap_or_else(|| "-".into());
        let text = row([
            &place.to_string(),
            &waiter.who.label(),
            &from,
            &time_or_dash(waiter.waited_ms),
            &waiter_left(waiter),
            waiter.id.as_deref().unwrap_or("-"),
        ]);
        out.push((Line::plain(cut(&text, cells)), Row::Waiter(waiter)));
    }
    let shown = u64::try_from(queue.len()).unwrap_or(u64::MAX);
    if let Some(more) = lock.waiters.and_then(|all| all.checked_sub(shown)).filter(|more| *more > 0) {
        out.push((Line::new(Tone::Dim, cut(&format!("     and {more} more"), cells)), Row::None));
    }
    out
}

/// `held for 4.2s, 25.8s left, ends with its connection:`
fn holder_times(holder: &Holder) -> String {
    if let Some(overdue) = holder.overdue_ms {
        return format!("expired {} ago, was held by", time(overdue));
    }
    let held = holder.held_ms.map_or_else(|| "held".into(), |ms| format!("held for {}", time(ms)));
    let lease = holder.lease_ms.map_or_else(String::new, |ms| format!(", {} left", time(ms)));
    let session = if holder.has_session { " (SESSION)" } else { "" };
    format!("{held}{lease}{session} by")
}

/// The waits around a lock: its holders, the locks they wait for, and below each client its waiters.
pub fn picture(graph: &Graph, roots: &[Node], glyphs: Glyphs, cells: usize) -> Vec<Line> {
    let mut out = Vec::new();
    for root in tops(graph, roots) {
        out.push(Line::plain(cut(&graph.party(root).long_label(), cells)));
        branches(graph, root, &mut vec![root], "", glyphs, cells, &mut out);
    }
    if out.is_empty() {
        out.push(Line::new(Tone::Dim, cut("nobody waits for a known holder", cells)));
    }
    out.truncate(MOST_LINES);
    out
}

/// Where the picture starts: at the clients that wait for nobody, or at a client of the cycle they lead to.
fn tops(graph: &Graph, roots: &[Node]) -> Vec<Node> {
    let mut tops = Vec::new();
    for root in roots {
        let (mut at, mut seen) = (*root, vec![*root]);
        while let Some(next) = graph.waits(at).first().and_then(|number| graph.edge(*number)).map(|edge| edge.to) {
            if seen.contains(&next) {
                // Starts at the selected holder rather than at another client of its cycle.
                at = if next == *root { *root } else { next };
                break;
            }
            at = next;
            seen.push(at);
        }
        if !tops.contains(&at) {
            tops.push(at);
        }
    }
    tops
}

fn branches(
    graph: &Graph,
    node: Node,
    path: &mut Vec<Node>,
    indent: &str,
    glyphs: Glyphs,
    cells: usize,
    out: &mut Vec<Line>,
) {
    let edges = graph.waited_for(node);
    // Edges of a cycle come first: many others must not hide them.
    let (cycle, others): (Vec<usize>, Vec<usize>) = edges.iter().partition(|edge| graph.is_in_cycle(**edge));
    let shown: Vec<usize> = cycle.into_iter().chain(others).take(MOST_BRANCHES).collect();
    let more = edges.len().saturating_sub(shown.len());
    for (place, number) in shown.iter().enumerate() {
        let Some(edge) = graph.edge(*number) else { continue };
        if out.len() >= MOST_LINES {
            return;
        }
        let is_last = place.saturating_add(1) == shown.len() && more == 0;
        let party: Party = graph.party(edge.from);
        let waited = edge.waited_ms.map_or_else(String::new, |ms| format!(" {}", time(ms)));
        let is_closed = path.contains(&edge.from);
        let who = if is_closed { party.label() } else { party.long_label() };
        let mark = match (is_closed, graph.is_in_cycle(*number)) {
            (true, _) => "  CYCLE: see above",
            (false, true) => "  CYCLE",
            (false, false) => "",
        };
        let tone = if graph.is_in_cycle(*number) { Tone::Bad } else { Tone::Plain };
        let begin = format!("{indent}{}", if is_last { glyphs.last } else { glyphs.branch });
        // The mark is shown even if the rest does not fit.
        let room = cells.saturating_sub(width(mark));
        let text = cut(&format!("{begin}{who} waits for {}{waited}", edge.lock.label()), room);
        out.push(Line::new(tone, format!("{text}{mark}")));
        if !is_closed {
            path.push(edge.from);
            let deeper = format!("{indent}{}", if is_last { glyphs.gap } else { glyphs.down });
            branches(graph, edge.from, path, &deeper, glyphs, cells, out);
            path.pop();
        }
    }
    if more > 0 {
        out.push(Line::new(Tone::Dim, cut(&format!("{indent}{}and {more} more", glyphs.last), cells)));
    }
}

/// Each cycle in one line: `CYCLE: bob #2 ─▶ report: alice #1 ─▶ invoices: bob #2`.
pub fn cycles(graph: &Graph, glyphs: Glyphs) -> Vec<Line> {
    let cycle = |edges: &Vec<usize>| {
        let edges: Vec<_> = edges.iter().filter_map(|number| graph.edge(*number)).collect();
        let mut text = String::from("CYCLE: ");
        if let Some(first) = edges.first() {
            text.push_str(&graph.party(first.from).label());
        }
        for edge in &edges {
            let _ = write!(text, " {} {}: {}", glyphs.arrow, edge.lock.label(), graph.party(edge.to).label());
        }
        Line::new(Tone::Bad, text)
    };
    graph.cycles.iter().map(cycle).collect()
}
