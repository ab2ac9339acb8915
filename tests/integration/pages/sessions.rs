//! The sessions that the pages show run as shown.
//!
//! A session is a block fenced as `console`, run against a server of its own:
//! - `A> command` sends as client A, whose connection opens with its first line and stays open; `$ redis-cli
//!   command` sends on a connection of its own. The lines that follow are the reply, as redis-cli prints it.
//!   A command without a reply waits; `A< reply` is the reply that ends the wait.
//! - A client that has sent SUBSCRIBE waits for messages; `A< reply` is the next one.
//! - `# A is killed` closes A's connection, `# 2 seconds later` lets time pass; other comments do nothing.
//! - Tokens (16 digits) stand for the ones that this run got, in the same order; the numbers of clients, ports and
//!   timestamps may differ; milliseconds have to be about the same; `(0.50s)` is skipped. Everything else is compared.

use super::{CLIENTS, COMMANDS, OPERATING, README};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testkit::{until, Conn, Reply, Server};

/// The pages with sessions.
const PAGES: [(&str, &str); 4] = [
    ("README.md", README),
    ("docs/COMMANDS.md", COMMANDS),
    ("docs/OPERATING.md", OPERATING),
    ("docs/CLIENTS.md", CLIENTS),
];

/// The tolerance for documented milliseconds, on a busy machine.
const TOLERANCE_MS: u64 = 3_000;
const TOKEN_DIGITS: usize = 16;

/// A line of a session and the reply after it.
struct Step<'a> {
    line: &'a str,
    reply: Vec<&'a str>,
}

/// A page's sessions, each with the number of its first line.
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
                _ => steps.last_mut().expect("a session begins with a command").reply.push(line),
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

/// The time that redis-cli prints for a reply.
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

/// The values of a session's numbers in this run.
#[derive(Default)]
struct Numbers {
    tokens: BTreeMap<String, String>,
    clients: BTreeMap<String, String>,
}

impl Numbers {
    /// A command of the session with this run's tokens.
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

/// Whether a shown number always stands for the same real one, and no two for the same.
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

/// Splits a line into runs of digits and the text between them.
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
    subscribed: BTreeSet<char>,
    numbers: Numbers,
}

impl Session {
    fn run(&mut self, what: &str, step: &Step) {
        if let Some(comment) = step.line.strip_prefix("# ") {
            self.comment(comment);
        } else if let Some(command) = step.line.strip_prefix("$ redis-cli ") {
            let reply = self.server.conn().execute(&words(&self.numbers.in_this_run(command)));
            self.numbers.assert_same(what, &step.reply, &printed(&reply, ""));
        } else if let Some((name, _)) = received(step.line) {
            assert!(self.waiting.remove(&name) || self.subscribed.contains(&name), "{what}: {name} does not wait");
            let reply = self.client(name).read();
            self.numbers.assert_same(what, &step.reply, &printed(&reply, ""));
        } else if let Some((name, command)) = sent(step.line) {
            let args = words(&self.numbers.in_this_run(command));
            self.client(name).send(&args);
            if command.starts_with("SUBSCRIBE ") {
                self.subscribed.insert(name);
            }
            if step.reply.is_empty() {
                self.waiting.insert(name);
                self.until_all_wait();
            } else {
                let reply = self.client(name).read();
                self.numbers.assert_same(what, &step.reply, &printed(&reply, ""));
            }
        } else {
            panic!("{what}: this is not a line of a session");
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
    let needs_7 = steps.iter().any(|step| ["CONFIG", "NOTIFY"].iter().any(|word| step.line.contains(word)));
    if needs_7 && server.conn().is_before_7() {
        return;
    }
    let (clients, waiting, subscribed, numbers) = Default::default();
    let mut session = Session { server, clients, waiting, subscribed, numbers };
    for step in steps {
        session.run(&format!("{what}: {}", step.line), step);
    }
    // Of 16 digits each, and in the order in which they are shown.
    let tokens: Vec<_> = session.numbers.tokens.values().collect();
    assert!(tokens.is_sorted(), "{what}: the tokens do not grow as shown");
}
