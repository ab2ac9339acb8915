//! What the pages for users show is what a server does: their sessions, settings, commands and errors.
//!
//! A session is a block fenced as `console`, run against a server of its own:
//! - `A> command` sends as client A, whose connection opens with its first line and stays; `$ redis-cli
//!   command` sends on a connection of its own. The lines that follow are the reply, as redis-cli prints it.
//!   A command without a reply waits; `A< reply` is the reply that ends the wait.
//! - `# A is killed` closes the connection of A, `# 2 seconds later` passes time; other comments do nothing.
//! - Tokens (16 digits) stand for the ones that this run got, in the same order; the numbers of clients, ports and
//!   timestamps are as they come; milliseconds are about as many; `(0.50s)` is skipped. All else is compared.

use crate::support::{until, Conn, Reply, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const README: &str = include_str!("../../README.md");
const COMMANDS: &str = include_str!("../../docs/COMMANDS.md");
const OPERATING: &str = include_str!("../../docs/OPERATING.md");
const DESIGN: &str = include_str!("../../docs/DESIGN.md");
/// The pages that show sessions.
const PAGES: [(&str, &str); 3] =
    [("README.md", README), ("docs/COMMANDS.md", COMMANDS), ("docs/OPERATING.md", OPERATING)];
const ERRORS: &str = include_str!("../../core/src/lock/error.rs");

/// By how much milliseconds may differ from the documented ones, on a busy machine.
const TOLERANCE_MS: u64 = 3_000;
const TOKEN_DIGITS: usize = 16;

/// A line of a session and the reply that follows it.
struct Step<'a> {
    line: &'a str,
    reply: Vec<&'a str>,
}

/// The sessions of a page, each with the number of its first line.
fn sessions(page: &'static str) -> Vec<(usize, Vec<Step<'static>>)> {
    let mut sessions = Vec::new();
    let mut open: Option<(usize, Vec<Step>)> = None;
    for (at, line) in page.lines().enumerate() {
        match &mut open {
            None if line == "```console" => open = Some((at + 2, Vec::new())),
            None => {}
            Some(_) if line == "```" => sessions.extend(open.take()),
            Some((_, steps)) => match (opens_step(line), received(line)) {
                (_, Some((_, first))) => steps.push(Step { line, reply: vec![first] }),
                (true, None) => steps.push(Step { line, reply: Vec::new() }),
                _ if is_duration(line) => {}
                _ => steps.last_mut().expect("a session opens with a command").reply.push(line),
            },
        }
    }
    assert!(open.is_none(), "a session has no end");
    sessions
}

fn opens_step(line: &str) -> bool {
    line.starts_with("# ") || line.starts_with("$ ") || sent(line).is_some()
}

/// `A> command`
fn sent(line: &str) -> Option<(char, &str)> {
    named(line, "> ")
}

/// `A< reply`
fn received(line: &str) -> Option<(char, &str)> {
    named(line, "< ")
}

fn named<'a>(line: &'a str, separator: &str) -> Option<(char, &'a str)> {
    let (name, rest) = line.split_once(separator)?;
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(name), None) if name.is_ascii_uppercase() => Some((name, rest)),
        _ => None,
    }
}

/// How long redis-cli says that a reply took.
fn is_duration(line: &str) -> bool {
    let seconds = line.strip_prefix('(').and_then(|line| line.strip_suffix("s)"));
    seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
}

/// Splits a command as redis-cli does, as far as the pages need it.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in command.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words
}

/// A reply as redis-cli prints it.
fn printed(reply: &Reply, indent: &str) -> Vec<String> {
    match reply {
        Reply::Nil => vec!["(nil)".into()],
        Reply::Int(number) => vec![format!("(integer) {number}")],
        Reply::Text(bytes) => vec![format!("\"{}\"", bytes.escape_ascii())],
        Reply::Status(text) => vec![text.clone()],
        Reply::Error(text) => vec![format!("(error) {text}")],
        Reply::List(items) if items.is_empty() => vec!["(empty array)".into()],
        Reply::List(items) => {
            let width = items.len().to_string().len();
            let inner = format!("{indent}{}", " ".repeat(width + 2));
            let mut lines = Vec::new();
            for (at, item) in items.iter().enumerate() {
                let before = if at == 0 { "" } else { indent };
                let mut own = printed(item, &inner);
                own[0] = format!("{before}{:>width$}) {}", at + 1, own[0]);
                lines.extend(own);
            }
            lines
        }
        other => panic!("redis-cli does not get this in RESP2: {other:?}"),
    }
}

/// What the numbers of a session stand for in this run.
#[derive(Default)]
struct Numbers {
    tokens: BTreeMap<String, String>,
    clients: BTreeMap<String, String>,
}

impl Numbers {
    /// A command of the session with the tokens of this run.
    fn in_this_run(&self, command: &str) -> String {
        self.tokens.iter().fold(command.to_string(), |command, (shown, real)| command.replace(shown, real))
    }

    fn assert_same(&mut self, what: &str, shown: &[&str], real: &[String]) {
        let differ = || format!("{what}\nshown:\n{}\nreal:\n{}", shown.join("\n"), real.join("\n"));
        assert_eq!(shown.len(), real.len(), "{}", differ());
        for (at, (shown_line, real_line)) in shown.iter().zip(real).enumerate() {
            let field = match at {
                _ if real.len() == 1 && real_line.starts_with("(integer) ") => "result",
                // The second of the four details.
                1 if real.len() == 4 && real_line.starts_with("2) (integer)") => "overdue-ms",
                0 => "",
                _ => real[at - 1].rsplit_once(") ").map_or("", |(_, text)| text.trim_matches('"')),
            };
            assert!(self.is_same(field, shown_line, real_line), "{}\nat: {shown_line}", differ());
        }
    }

    fn is_same(&mut self, field: &str, shown: &str, real: &str) -> bool {
        let (shown, real) = (pieces(shown), pieces(real));
        shown.len() == real.len()
            && shown.iter().zip(real).all(|(shown, real)| *shown == real || self.is_same_number(field, shown, real))
    }

    fn is_same_number(&mut self, field: &str, shown: &str, real: &str) -> bool {
        let (Ok(shown_number), Ok(real_number)) = (shown.parse::<u64>(), real.parse::<u64>()) else { return false };
        let is_token = |digits: &str| digits.len() == TOKEN_DIGITS;
        match field {
            _ if is_token(shown) && is_token(real) => stands_for(&mut self.tokens, shown, real),
            "session" | "client" => stands_for(&mut self.clients, shown, real),
            "timestamp" => shown.len() == real.len(),
            "addr" => shown_number > 1_023 && real_number > 1_023,
            // 0, 1 and -1 are results, not times.
            "result" if shown_number <= 1 || real_number <= 1 => false,
            "result" => shown_number.abs_diff(real_number) <= TOLERANCE_MS,
            _ => field.ends_with("-ms") && shown_number.abs_diff(real_number) <= TOLERANCE_MS,
        }
    }
}

/// Whether a shown number stands for the same real one each time, no two for the same.
fn stands_for(known: &mut BTreeMap<String, String>, shown: &str, real: &str) -> bool {
    match known.get(shown) {
        Some(before) => before == real,
        None if known.values().any(|other| other == real) => false,
        None => {
            known.insert(shown.into(), real.into());
            true
        }
    }
}

/// A line in runs of digits and what is between them.
fn pieces(line: &str) -> Vec<&str> {
    line.as_bytes()
        .chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit())
        .map(|run| std::str::from_utf8(run).expect("sessions are ASCII"))
        .collect()
}

/// A running session.
struct Session {
    server: Server,
    clients: BTreeMap<char, Conn>,
    waiting: BTreeSet<char>,
    numbers: Numbers,
}

impl Session {
    fn run(&mut self, what: &str, step: &Step) {
        if let Some(comment) = step.line.strip_prefix("# ") {
            self.comment(comment);
        } else if let Some(command) = step.line.strip_prefix("$ redis-cli ") {
            let reply = self.server.conn().call(&words(&self.numbers.in_this_run(command)));
            self.numbers.assert_same(what, &step.reply, &printed(&reply, ""));
        } else if let Some((name, _)) = received(step.line) {
            assert!(self.waiting.remove(&name), "{what}: {name} does not wait");
            let reply = self.client(name).read();
            self.numbers.assert_same(what, &step.reply, &printed(&reply, ""));
        } else if let Some((name, command)) = sent(step.line) {
            let args = words(&self.numbers.in_this_run(command));
            self.client(name).send(&args);
            if step.reply.is_empty() {
                self.waiting.insert(name);
                self.until_all_wait();
            } else {
                let reply = self.client(name).read();
                self.numbers.assert_same(what, &step.reply, &printed(&reply, ""));
            }
        } else {
            panic!("{what}: this is no line of a session");
        }
    }

    fn comment(&mut self, comment: &str) {
        if let Some((name, _)) = comment.split_once(" is killed") {
            let name = name.parse().expect("the letter of a client");
            assert!(self.clients.remove(&name).is_some(), "there is no client {name}");
        } else if let Some((count, _)) = comment.split_once(" second").filter(|(_, rest)| rest.contains("later")) {
            std::thread::sleep(Duration::from_secs(count.parse().expect("a number of seconds")));
        }
    }

    fn client(&mut self, name: char) -> &mut Conn {
        self.clients.entry(name).or_insert_with(|| self.server.conn())
    }

    fn until_all_wait(&self) {
        let mut conn = self.server.conn();
        let expected = format!("blocked_clients:{}", self.waiting.len());
        until("the client waits, as the session shows by giving no reply", || {
            conn.text(&["INFO", "clients"]).lines().any(|line| line.trim() == expected).then_some(())
        });
    }
}

/// Whether modules have no settings and COMMAND LIST on this server: before 7.0.
fn is_before_7(conn: &mut Conn) -> bool {
    conn.text(&["INFO", "server"]).contains("redis_version:6.")
}

#[test]
fn the_sessions_run_as_shown() {
    for (name, page) in PAGES {
        let sessions = sessions(page);
        assert!(!sessions.is_empty(), "{name} shows a session");
        for (at, steps) in sessions {
            run_as_shown(&format!("{name}, session at line {at}"), &steps);
        }
    }
}

fn run_as_shown(what: &str, steps: &[Step]) {
    let server = Server::start();
    let needs_7 = steps.iter().any(|step| step.line.contains("CONFIG"));
    if needs_7 && is_before_7(&mut server.conn()) {
        return;
    }
    let (clients, waiting, numbers) = Default::default();
    let mut session = Session { server, clients, waiting, numbers };
    for step in steps {
        session.run(&format!("{what}: {}", step.line), step);
    }
    // Of 16 digits each, and in the order in which they are shown.
    let tokens: Vec<_> = session.numbers.tokens.values().collect();
    assert!(tokens.is_sorted(), "{what}: the tokens do not grow as shown");
}

/// The cells of the rows of a table that open with this.
fn rows<'a>(text: &'a str, opening: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().filter(|line| line.starts_with(opening));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The settings of the table: name, default, least and most.
pub fn settings() -> Vec<[&'static str; 4]> {
    let setting = |row: &Vec<&'static str>| {
        let (least, most) = row[2].split_once(" to ").expect("a range");
        [row[0].trim_matches('`'), row[1], least, most]
    };
    rows(OPERATING, "| `lock.").iter().map(setting).collect()
}

#[test]
fn the_settings_are_those_of_the_table() {
    let (_server, mut conn) = Server::connected();
    if is_before_7(&mut conn) {
        return;
    }
    let shown: BTreeMap<String, String> =
        settings().iter().map(|[name, default, ..]| (name.to_string(), default.to_string())).collect();
    let reply = conn.call(&["CONFIG", "GET", "lock.*"]);
    let real: BTreeMap<String, String> = reply.list().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect();
    assert_eq!(shown, real);
}

#[test]
fn the_commands_are_those_of_the_server() {
    let (_server, mut conn) = Server::connected();
    let table: BTreeSet<String> =
        rows(README, "| [`LOCK.").iter().map(|row| row[0].split('`').nth(1).expect("a command").to_string()).collect();
    // `    LOCK.INFO key [FULL]`, below the heading of the command.
    let syntax: BTreeSet<String> = COMMANDS
        .split("\n### ")
        .filter(|section| section.starts_with("LOCK."))
        .map(|section| {
            let mut lines = section.lines();
            let heading = lines.next().unwrap();
            let syntax = lines.find_map(|line| line.strip_prefix("    ")).expect("the syntax of the command");
            assert_eq!(syntax.split(' ').next(), Some(heading), "the syntax is that of another command");
            syntax.to_string()
        })
        .collect();
    let help = conn.call(&["LOCK.HELP"]);
    // The first line tells what they have in common.
    let said: BTreeSet<String> = help.list()[1..]
        .iter()
        .map(Reply::text)
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.replace("<seconds>", "s").replace("<milliseconds>", "ms").replace(['<', '>'], ""))
        .map(|line| format!("LOCK.{line}"))
        .collect();
    assert_eq!(syntax, said);
    let names = |lines: &BTreeSet<String>| -> BTreeSet<String> {
        lines.iter().map(|line| line.split(' ').next().unwrap().to_string()).collect()
    };
    assert_eq!(table, names(&said));
    if !is_before_7(&mut conn) {
        let list = conn.call(&["COMMAND", "LIST", "FILTERBY", "MODULE", "lock"]);
        assert_eq!(table, list.list().iter().map(|name| name.text().to_uppercase()).collect());
    }
}

/// The texts of the errors in the source, cut at what is filled in.
fn error_texts() -> Vec<Vec<&'static str>> {
    let (product, _) = ERRORS.split_once("#[cfg(test)]").unwrap();
    let literals = product.lines().filter_map(|line| line.split_once('"')?.1.rsplit_once('"').map(|(text, _)| text));
    let texts: Vec<Vec<&str>> = literals.map(|text| text.split(['{', '}']).step_by(2).collect()).collect();
    assert!(texts.len() > 15 && texts.iter().all(|text| has_code(text[0])), "not as expected: {texts:?}");
    texts
}

/// Whether a text opens with a code word, as errors do.
fn has_code(text: &str) -> bool {
    let code = text.split_once(' ').map_or("", |(code, _)| code);
    let codes = ["ERR", "WRONGTYPE", "DEADLOCK", "UNBLOCKED", "BUSYLOCKS", "GRACE", "CLOCK", "NOREPLICAS", "READONLY"];
    codes.contains(&code)
}

fn is_text(quoted: &str, pieces: &[&str]) -> bool {
    let mut rest = quoted;
    for (at, piece) in pieces.iter().enumerate() {
        match rest.find(piece) {
            Some(0) => rest = &rest[piece.len()..],
            Some(found) if at > 0 => rest = &rest[found + piece.len()..],
            _ => return false,
        }
    }
    rest.is_empty() || pieces.last() == Some(&"")
}

#[test]
fn errors_that_are_quoted_exist_and_the_design_has_them_all() {
    let texts = error_texts();
    let quoted = |document: &'static str| -> Vec<&'static str> {
        document.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|text| has_code(text)).collect()
    };
    for (name, document) in [("docs/COMMANDS.md", COMMANDS), ("docs/DESIGN.md", DESIGN)] {
        for text in quoted(document) {
            assert!(texts.iter().any(|known| is_text(text, known)), "{name}: there is no error '{text}'");
        }
    }
    let designed = quoted(DESIGN);
    for known in &texts {
        assert!(
            designed.iter().any(|text| is_text(text, known)),
            "docs/DESIGN.md lacks the error '{}'",
            known.join("...")
        );
    }
}

/// All pages: those at the top, and those of the folders that have some.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["", "docs", "examples", "benches"].map(|folder| root.join(folder));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
}

#[test]
fn links_lead_somewhere() {
    let mut checked = 0;
    for page in pages() {
        let name = page.display();
        let document = std::fs::read_to_string(&page).unwrap();
        for link in document.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, wanted) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let path = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(path.exists(), "{name}: {link} is not there");
            checked += 1;
            let Some(wanted) = wanted else { continue };
            let text = std::fs::read_to_string(&path).unwrap();
            let found = text.lines().any(|line| line.starts_with('#') && anchor(line) == wanted);
            assert!(found, "{name}: there is no heading for {link}");
        }
    }
    assert!(checked > 100, "only {checked} links were found");
}

#[test]
fn the_readme_can_be_read_in_two_minutes_and_leads_to_every_page() {
    assert!(README.lines().count() <= 250, "the README has {} lines", README.lines().count());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for page in pages() {
        let name = page.strip_prefix(root).unwrap().to_str().unwrap();
        assert!(name == "README.md" || README.contains(&format!("]({name})")), "the README does not link {name}");
    }
}
