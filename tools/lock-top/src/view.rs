//! Paints the state of the view into a buffer of cells.

use crate::action::Action;
use crate::app::{App, Dialog, Focus, Lower};
use crate::lines::{self, Line, Tone};
use crate::text::{cut, fold, left, width, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};

/// The keys, and what they do.
const KEYS: &[(&str, &str)] = &[
    ("up, down, j, k", "select a lock, or a row of its line"),
    ("Tab, Enter", "go to the line of the lock, and back"),
    ("v", "line, or picture of who waits for whom"),
    ("s", "sort by waiters, oldest wait, time held"),
    ("a", "all locks, or those somebody waits for"),
    ("r", "release the lock from its holder"),
    ("c", "cancel the selected waiter"),
    ("C", "cancel all waiters of its channel"),
    ("q", "leave"),
];
const ASKS: &str = "r, c and C show the command and ask before they send it.";
/// Explains the mark after LEFT.
const AT_LEAST: &str = "+ after LEFT: it waits longer if it waits in pieces.";
const HINT: &str = "?:help  s:sort  a:all  v:picture  Tab:line  r:release  c:cancel  q:quit";

/// How many lines may be shown above the locks: about the Sentinels, and cycles.
const MOST_ALARMS: usize = 3;

/// Paints everything.
pub fn paint(app: &App, area: Rect, buffer: &mut Buffer) {
    let cells = usize::from(area.width);
    let servers = lines::servers(&app.servers, cells);
    let mut alarms: Vec<_> = app.sentinels.iter().map(|text| Line::new(Tone::Bad, text.clone())).collect();
    alarms.extend(lines::cycles(&app.graph, app.glyphs));
    if alarms.len() > MOST_ALARMS {
        let more = alarms.len().saturating_sub(MOST_ALARMS.saturating_sub(1));
        alarms.truncate(MOST_ALARMS.saturating_sub(1));
        alarms.push(Line::new(Tone::Bad, format!("and {more} more cycles among these locks")));
    }
    let third = area.height / 3;
    let [title, head, alarm, table, rule, lower, status] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows(servers.len()).min(third)),
        Constraint::Length(rows(alarms.len())),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);

    let painter = Painter { color: app.color };
    painter.line(&Line::new(Tone::Head, left(&headline(app), cells)), title, 0, false, buffer);
    painter.lines(&servers, head, None, buffer);
    painter.lines(&alarms, alarm, None, buffer);
    locks(app, painter, table, buffer);
    let name = app.selected().map_or_else(|| "no lock".into(), |(_, lock)| lock.name.label());
    let what = if app.lower == Lower::Queue { "holders and line" } else { "who waits for whom" };
    painter.line(&Line::new(Tone::Head, left(&format!("{name}: {what}"), cells)), rule, 0, false, buffer);
    detail(app, painter, lower, buffer);
    let hint = app.status.as_deref().unwrap_or(HINT);
    let tone = if app.status.is_some() { Tone::Plain } else { Tone::Dim };
    painter.line(&Line::new(tone, cut(hint, cells)), status, 0, false, buffer);
    dialog(app, painter, area, buffer);
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

fn headline(app: &App) -> String {
    let answer = app.servers.iter().filter(|server| server.trouble.is_none()).count();
    let servers = match (app.servers.len(), answer) {
        (1, 1) => "1 server".into(),
        (1, 0) => "1 server, no answer".into(),
        (all, answer) if all == answer => format!("{all} servers"),
        (all, answer) => format!("{all} servers, {answer} answer"),
    };
    let which = if app.all { "all locks" } else { "locks with waiters" };
    format!("lock-top  {servers}  {which}, by {}", by_text(app))
}

fn by_text(app: &App) -> &'static str {
    match app.by.word() {
        "wait" => "oldest wait",
        "held" => "time held",
        other => other,
    }
}

fn locks(app: &App, painter: Painter, area: Rect, buffer: &mut Buffer) {
    let cells = usize::from(area.width.saturating_sub(1));
    let all = app.locks();
    let mut shown = vec![lines::locks_head(&app.servers, cells)];
    let room = usize::from(area.height.saturating_sub(1));
    let first = first_shown(app.place(), all.len(), room);
    shown.extend(all.iter().skip(first).take(room).map(|(at, lock)| lines::lock(lock, *at, &app.servers, cells)));
    if all.is_empty() {
        let answers = app.servers.iter().any(|server| server.trouble.is_none());
        let text = match (answers, app.all) {
            (false, _) => "no server answers",
            (true, false) => "nobody waits for a lock",
            (true, true) => "no locks",
        };
        shown.push(Line::new(Tone::Dim, text));
    }
    let selected = (!all.is_empty()).then(|| app.place().saturating_sub(first).saturating_add(1));
    painter.marked(&shown, area, selected, app.focus == Focus::Locks, buffer);
}

fn detail(app: &App, painter: Painter, area: Rect, buffer: &mut Buffer) {
    let Some((at, lock)) = app.selected() else { return };
    let cells = usize::from(area.width.saturating_sub(1));
    let room = usize::from(area.height);
    if app.lower == Lower::Picture {
        let holders = app.graph.holders_of(at, &lock.name, &lock.holders);
        painter.marked(&lines::picture(&app.graph, &holders, app.glyphs, cells), area, None, false, buffer);
        return;
    }
    let all = lines::queue(lock, cells);
    let first = first_shown(app.row, all.len(), room);
    let shown: Vec<Line> = all.into_iter().skip(first).take(room).map(|(line, _)| line).collect();
    let is_here = app.focus == Focus::Queue;
    painter.marked(&shown, area, is_here.then(|| app.row.saturating_sub(first)), is_here, buffer);
}

/// The first row to show, so that the selected one is visible.
fn first_shown(selected: usize, all: usize, room: usize) -> usize {
    selected.saturating_add(1).saturating_sub(room).min(all.saturating_sub(room))
}

fn dialog(app: &App, painter: Painter, area: Rect, buffer: &mut Buffer) {
    let (title, text): (&str, Vec<String>) = match &app.dialog {
        Dialog::None => return,
        Dialog::Help => ("Keys", help(area)),
        Dialog::Confirm(action) => ("Send this?", question(action, area)),
    };
    let widest = text.iter().map(|line| width(line)).max().unwrap_or(0).saturating_add(4);
    let wide = rows(widest).max(24).min(area.width);
    let high = rows(text.len()).saturating_add(2).min(area.height);
    let x = area.x.saturating_add(area.width.saturating_sub(wide) / 2);
    let y = area.y.saturating_add(area.height.saturating_sub(high) / 2);
    let inner = usize::from(wide.saturating_sub(4));
    // A frame of characters that every terminal has.
    let rule = format!("+{}+", "-".repeat(usize::from(wide.saturating_sub(2))));
    let head = format!("+- {title} {}+", "-".repeat(usize::from(wide.saturating_sub(5)).saturating_sub(width(title))));
    let body = text.iter().map(|line| format!("| {} |", left(line, inner)));
    let lines: Vec<Line> =
        std::iter::once(head).chain(body).chain([rule]).map(|text| Line { text, tone: Tone::Plain }).collect();
    painter.lines(&lines, Rect::new(x, y, wide, high), None, buffer);
}

/// What each key does, in this area: beside the key, or below it in a narrow area.
fn help(area: Rect) -> Vec<String> {
    let cells = usize::from(area.width.saturating_sub(4));
    let column = KEYS.iter().map(|(keys, _)| width(keys)).max().unwrap_or(0).saturating_add(2);
    let mut lines = Vec::new();
    for (keys, does) in KEYS {
        let indent = if cells >= column.saturating_mul(2) { column } else { 2 };
        if indent < column {
            lines.push((*keys).to_string());
        }
        for (row, text) in wrap(does, cells.saturating_sub(indent)).into_iter().enumerate() {
            let before = if row == 0 && indent == column { keys } else { "" };
            lines.push(format!("{}{text}", left(before, indent)));
        }
    }
    lines.push(String::new());
    lines.extend([ASKS, AT_LEAST].into_iter().flat_map(|text| wrap(text, cells)));
    lines
}

/// The question to confirm, in this area. The command is shown in full, or at least both ends: they contain the token
/// and the part that distinguishes two long keys.
fn question(action: &Action, area: Rect) -> Vec<String> {
    let (cells, high) = (usize::from(area.width.saturating_sub(4)), usize::from(area.height.saturating_sub(2)));
    let folded = |text: &str| fold(text, cells, high);
    let before = folded(&format!("on {}:", action.address));
    let holder = folded(&format!("of {}", action.who));
    let (warning, keys) = (folded(action.warning()), "y: send it   any other key: do not".to_string());
    let others = [&before, &holder, &warning].into_iter().map(Vec::len).sum::<usize>().saturating_add(1);
    // Empty lines if there is room for them.
    let command = fold(&action.text(), cells, high.saturating_sub(others));
    let is_tight = command.len().saturating_add(others).saturating_add(2) > high;
    let gap = if is_tight { vec![] } else { vec![String::new()] };
    [before, command, holder, gap.clone(), warning, gap, vec![keys]].concat()
}

#[derive(Clone, Copy)]
struct Painter {
    color: bool,
}

impl Painter {
    fn style(self, tone: Tone) -> Style {
        let style = Style::default();
        match (tone, self.color) {
            (Tone::Head, true) => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            (Tone::Bad, true) => style.fg(Color::Red).add_modifier(Modifier::BOLD),
            (Tone::Dim, true) => style.fg(Color::DarkGray),
            (Tone::Head | Tone::Bad, false) => style.add_modifier(Modifier::BOLD),
            (Tone::Plain, _) | (Tone::Dim, false) => style,
        }
    }

    fn line(self, line: &Line, area: Rect, row: u16, is_selected: bool, buffer: &mut Buffer) {
        if row >= area.height {
            return;
        }
        let style = self.style(line.tone);
        let style = if is_selected { style.add_modifier(Modifier::REVERSED) } else { style };
        let text = left(&line.text, usize::from(area.width));
        buffer.set_stringn(area.x, area.y.saturating_add(row), text, usize::from(area.width), style);
    }

    fn lines(self, lines: &[Line], area: Rect, selected: Option<usize>, buffer: &mut Buffer) {
        for (row, line) in lines.iter().enumerate() {
            self.line(line, area, rows(row), selected == Some(row), buffer);
        }
    }

    /// Like `lines`, after a column that marks the selected row, so that it is visible without colour.
    fn marked(self, lines: &[Line], area: Rect, selected: Option<usize>, is_here: bool, buffer: &mut Buffer) {
        let mark = |row| if selected == Some(row) { ">" } else { " " };
        let marked: Vec<Line> = lines
            .iter()
            .enumerate()
            .map(|(row, line)| Line { text: format!("{}{}", mark(row), line.text), tone: line.tone })
            .collect();
        self.lines(&marked, area, selected.filter(|_| is_here), buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::{app, press};
    use crate::model::tests::{lock, party};
    use crate::model::{Info, Lock, Rates, Server};
    use ratatui::backend::TestBackend;
    use ratatui::Terminal;

    fn screen(app: &App, wide: u16, high: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(wide, high)).unwrap();
        terminal.draw(|frame| paint(app, frame.area(), frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..wide).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_string();
        (0..high).map(row).collect()
    }

    fn crossed() -> Vec<Lock> {
        vec![
            lock("report", party(1, "alice"), vec![party(2, "bob"), party(3, "carol")]),
            lock("invoices", party(2, "bob"), vec![party(1, "alice")]),
        ]
    }

    fn known(locks: Vec<Lock>) -> Server {
        let info = "lock_waiters:3\nlock_queued:0\nlock_grace_left_ms:0\n";
        Server {
            address: "127.0.0.1:6379".into(),
            role: Some("master".into()),
            info: Info::of(info),
            rates: Some(Rates { grants: 12.34, hand_offs: 2.0, timeouts: 0.0 }),
            max_waiters: Some(5000),
            max_queued: Some(100_000),
            grace_ms: Some(0),
            locks,
            ..Server::default()
        }
    }

    #[test]
    fn everything_has_its_place_at_80_columns() {
        let mut app = app(vec![]);
        app.show(vec![known(crossed())]);
        let expected = [
            "lock-top  1 server  locks with waiters, by waiters",
            "SERVER                ROLE        BLOCKED        NOTIFY GRANT/S HANDOFF/S TOUT/S",
            "127.0.0.1:6379        master       3/5000      0/100000    12.3       2.0    0.0",
            "  grace: off",
            "CYCLE: bob #2 ─▶ report: alice #1 ─▶ invoices: bob #2",
            " LOCK               STATE   WAITERS  OLDEST    HELD  HOLDER",
            ">report             held          2    3.2s   1m01s  alice #1 10.0.0.1:5000",
            " invoices           held          1    3.2s   1m01s  bob #2 10.0.0.2:5000",
            "",
            "report: holders and line",
            " held for 1m01s, 4.0s left by alice #1 10.0.0.1:5000",
            " LINE CLIENT          ADDRESS                WAITED    LEFT  ID",
            "    1 bob #2          10.0.0.2:5000            3.2s       -  4711",
            "    2 carol #3        10.0.0.3:5000            3.2s       -  4711",
            "?:help  s:sort  a:all  v:picture  Tab:line  r:release  c:cancel  q:quit",
        ];
        assert_eq!(screen(&app, 80, 15), expected);
        press(&mut app, "v");
        let picture = [
            "report: who waits for whom",
            " alice #1 10.0.0.1:5000",
            " ├─ bob #2 10.0.0.2:5000 waits for report 3.2s  CYCLE",
            " │  └─ alice #1 waits for invoices 3.2s  CYCLE: see above",
            " └─ carol #3 10.0.0.3:5000 waits for report 3.2s",
        ];
        assert_eq!(screen(&app, 80, 15)[9..14], picture);
    }

    #[test]
    fn the_view_fits_every_screen() {
        let long = "k".repeat(300);
        let mut locks = crossed();
        locks.push(lock(&long, party(4, &long), vec![party(5, &long); 300]));
        let mut app = app(vec![]);
        app.show(vec![known(locks), Server::without("[::1]:7000", "no".repeat(200))]);
        for keys in ["", "v", "v?", "xr", "n\tjjj"] {
            press(&mut app, keys);
            // Every size, down to 1x1: no panic, and nothing outside.
            for (wide, high) in [(80, 24), (40, 10), (20, 5), (1, 1), (200, 3), (3, 60)] {
                assert_eq!(screen(&app, wide, high).len(), usize::from(high));
            }
        }
    }

    #[test]
    fn the_help_is_complete_on_a_narrow_terminal() {
        let mut app = app(crossed());
        press(&mut app, "?");
        for (wide, high) in [(80, 24), (60, 24), (40, 24), (30, 40)] {
            let screen = screen(&app, wide, high);
            let inside = |line: &String| Some(line.get(line.find('|')?.checked_add(1)?..line.rfind('|')?)?.to_string());
            let text = screen.iter().filter_map(inside).collect::<Vec<_>>().join(" ");
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for (keys, does) in KEYS {
                assert!(text.contains(keys) && text.contains(does), "{wide}: {keys} {does}:\n{}", screen.join("\n"));
            }
            assert!(text.contains(ASKS) && !text.contains('~'), "{wide}:\n{}", screen.join("\n"));
        }
    }

    #[test]
    fn the_selected_row_is_seen_and_marked() {
        let locks = (0..50).map(|n| lock(&format!("k{n:02}"), party(1, "a"), vec![party(2, "b")])).collect();
        let mut app = app(locks);
        press(&mut app, &"j".repeat(30));
        let marked: Vec<String> = screen(&app, 80, 24).into_iter().filter(|line| line.starts_with('>')).collect();
        assert_eq!(marked.len(), 1);
        assert!(marked[0].starts_with(">k30"), "{marked:?}");
    }

    #[test]
    fn a_confirmation_shows_the_server_and_the_command() {
        let mut app = app(vec![]);
        app.show(vec![known(crossed())]);
        press(&mut app, "r");
        let screen = screen(&app, 80, 24).join("\n");
        assert!(screen.contains("on 127.0.0.1:6379:") && screen.contains("LOCK.RELEASE report 7"), "{screen}");
        assert!(screen.contains("of alice #1 10.0.0.1:5000") && screen.contains("y: send it"), "{screen}");
    }

    #[test]
    fn a_confirmation_distinguishes_long_keys() {
        for (length, wide, high) in [(50, 40, 12), (300, 80, 24), (4_096, 80, 24), (4_096, 40, 12)] {
            for end in ["one", "two"] {
                let key = format!("{}{end}", "k".repeat(length - 3));
                let mut app = app(vec![lock(&key, party(1, "alice"), vec![party(2, "bob")])]);
                press(&mut app, "r");
                let screen = screen(&app, wide, high);
                let inside = |line: &String| Some(line.strip_prefix("| ")?.strip_suffix('|')?.trim_end().to_string());
                let text = screen.iter().filter_map(inside).collect::<String>();
                assert!(
                    text.contains("LOCK.RELEASE kkk") && text.contains(&format!("kkk{end} 7of alice")),
                    "{screen:#?}"
                );
                for part in ["on 127.0.0.1:6379:", "Make sure that it has stopped.", "y: send it"] {
                    assert!(text.replace(' ', "").contains(&part.replace(' ', "")), "{part}: {screen:#?}");
                }
            }
        }
    }

    #[test]
    fn without_colour_no_cell_has_one() {
        let mut app = app(vec![]);
        app.show(vec![known(crossed())]);
        for color in [false, true] {
            app.color = color;
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|frame| paint(&app, frame.area(), frame.buffer_mut())).unwrap();
            let buffer = terminal.backend().buffer();
            let colored = buffer.content().iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
            assert_eq!(colored.count() > 0, color);
        }
    }

    #[test]
    fn trouble_and_the_grace_are_in_the_header() {
        let mut on = known(vec![]);
        on.info = Info::of("lock_waiters:0\nlock_grace_left_ms:12300\nlock_grace_misconfigured:1\n");
        on.grace_ms = Some(20_000);
        on.notes = vec!["may not run LOCK.TOP".into()];
        let mut app = app(vec![]);
        app.show(vec![on, Server::without("10.0.0.9:6379", "connection refused")]);
        let screen = screen(&app, 80, 24).join("\n");
        for text in [
            "2 servers, 1 answer",
            "grace: grants nothing for another 12.3s of 20.0s",
            "does not protect",
            "  may not run LOCK.TOP",
            "10.0.0.9:6379: connection refused",
        ] {
            assert!(screen.contains(text), "{text}:\n{screen}");
        }
    }

    #[test]
    fn cycles_beyond_the_screen_are_counted() {
        let pair = |n: u64| {
            let (one, other) = (party(2 * n, "one"), party(2 * n + 1, "other"));
            let (left, right) = (format!("left:{n}"), format!("right:{n}"));
            [lock(&left, one.clone(), vec![other.clone()]), lock(&right, other, vec![one])]
        };
        let mut app = app((1..=5).flat_map(pair).collect());
        app.sentinels = Some("no Sentinel answers".into());
        let screen = screen(&app, 80, 24);
        assert_eq!(screen.iter().filter(|line| line.starts_with("CYCLE: ")).count(), 1, "{screen:#?}");
        for text in ["no Sentinel answers", "and 4 more cycles among these locks"] {
            assert!(screen.iter().any(|line| line == text), "{text}: {screen:#?}");
        }
    }

    #[test]
    fn many_waiters_do_not_hide_a_cycle_in_the_picture() {
        let mut waiters: Vec<_> = (10..510).map(|client| party(client, "")).collect();
        waiters.push(party(2, "bob"));
        let locks = vec![lock("a", party(1, "alice"), waiters), lock("b", party(2, "bob"), vec![party(1, "alice")])];
        let mut app = app(locks);
        press(&mut app, "v");
        let screen = screen(&app, 80, 40).join("\n");
        assert!(screen.contains("bob #2 10.0.0.2:5000 waits for a 3.2s  CYCLE"), "{screen}");
        assert!(screen.contains("and 493 more"), "{screen}");
    }
}
