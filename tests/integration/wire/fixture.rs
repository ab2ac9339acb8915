//! Reads `tests/fixtures/wire.toml` and compares replies with its patterns, byte by byte.

use std::collections::BTreeMap;

use serde::Deserialize;

pub use testkit::{expire_at_ms as expires_at_ms, server_time_us as now_us};
use testkit::{show, Conn, Reply};

/// The longest that one case may take; `{new}` is a time within it.
const CASE_US: i64 = 60_000_000;

/// The file, as its own first lines describe it.
#[derive(Deserialize)]
pub struct Fixture {
    pub ours: Vec<Ours>,
    /// Texts and their microseconds.
    pub others: BTreeMap<String, i64>,
    pub foreign: Foreign,
    pub commands: BTreeMap<String, Words>,
    pub outcome: BTreeMap<String, Outcome>,
    layout: Layout,
    pub ordinary: BTreeMap<String, String>,
    pub state: Vec<State>,
    /// Replies, and the commands that get them.
    pub error: BTreeMap<String, Vec<Words>>,
    pub number: Vec<Number>,
    pub inspect: Vec<Inspection>,
    pub refusal: BTreeMap<String, String>,
    pub stream: Vec<StreamCase>,
    pub several: Vec<Inspection>,
    pub notify: Vec<Inspection>,
    pub queue: QueueFormat,
}

/// The second key of the portable lock.
#[derive(Deserialize)]
pub struct QueueFormat {
    /// Its name for each lock; empty if the lock has none.
    pub name: BTreeMap<String, String>,
    /// The member for each way to ask.
    pub member: BTreeMap<String, String>,
}

#[derive(Deserialize)]
pub struct Ours {
    pub text: String,
    pub timestamp_us: i64,
    pub token: i64,
    pub id: Option<String>,
    pub owner: Option<String>,
}

#[derive(Deserialize)]
pub struct Foreign {
    pub always: Vec<String>,
    pub with_native_expiry: Vec<String>,
}

/// A command: cut at single spaces, or a list where an argument needs it.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Words {
    Line(String),
    List(Vec<String>),
}

impl Words {
    pub fn words(&self) -> Vec<&str> {
        match self {
            Words::Line(line) => line.split(' ').collect(),
            Words::List(list) => list.iter().map(String::as_str).collect(),
        }
    }
}

#[derive(Deserialize)]
pub struct Outcome {
    pub reply: String,
    pub key: Effect,
}

/// The key afterwards.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    Same,
    New,
    Later,
    Gone,
    Joined,
    Instead,
    Raised,
    Taken,
}

/// Fields of LOCK.INFO by their names, and what each is in a reply.
type Fields = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Layout {
    info: String,
    usual: Fields,
}

#[derive(Deserialize)]
pub struct State {
    pub name: String,
    pub setup: Vec<Words>,
    #[serde(default)]
    pub variants: Vec<Words>,
    pub token: String,
    #[serde(default = "default_margin")]
    pub margin_ms: i64,
    #[serde(default)]
    info: Fields,
    #[serde(default = "default_info_reply")]
    info_reply: String,
    /// The outcome of every command.
    pub all: Option<String>,
    /// Name of a command to name of its outcome, where it is not the ordinary one.
    #[serde(flatten)]
    pub row: BTreeMap<String, String>,
}

fn default_margin() -> i64 {
    1000
}

fn default_info_reply() -> String {
    "{map}{info}".into()
}

#[derive(Deserialize)]
pub struct Number {
    pub kind: Kind,
    #[serde(default)]
    pub unit_ms: i64,
    pub commands: Vec<Words>,
    pub reply: String,
    pub accepted: Vec<String>,
    pub refused: Vec<String>,
}

/// What a command of part seven replicates.
#[derive(Deserialize)]
pub struct StreamCase {
    pub name: String,
    pub setup: Vec<Words>,
    pub command: Words,
    pub reply: String,
    pub stream: Vec<Words>,
}

/// A query of the scene of part five or eight, or a step of part nine.
#[derive(Deserialize)]
pub struct Inspection {
    pub command: Words,
    /// The messages to a subscriber.
    pub message: Option<String>,
    #[serde(default)]
    info: Fields,
    reply: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Lease,
    Token,
    Id,
    Owner,
    Wait,
    Count,
    Limit,
    NumKeys,
    Cursor,
    Client,
}

impl Fixture {
    pub fn load() -> Self {
        toml::from_str(include_str!("../../fixtures/wire.toml")).expect("the fixture matches its header")
    }

    /// Every state once for each of its variants, with the commands that create it.
    pub fn states(&self) -> Vec<(&State, Vec<&Words>)> {
        let mut all = Vec::new();
        for state in &self.state {
            let setup: Vec<&Words> = state.setup.iter().collect();
            if state.variants.is_empty() {
                all.push((state, setup.clone()));
            }
            for variant in &state.variants {
                all.push((state, setup.iter().copied().chain([variant]).collect()));
            }
        }
        all
    }

    /// What LOCK.INFO replies in a state.
    pub fn info_reply(&self, state: &State) -> String {
        self.with_info(&state.info_reply, &state.info)
    }

    /// The reply to a query.
    pub fn inspection_reply(&self, inspection: &Inspection) -> String {
        self.with_info(&inspection.reply, &inspection.info)
    }

    fn with_info(&self, reply: &str, given: &Fields) -> String {
        let Layout { info, usual } = &self.layout;
        let place = |name: &String| format!("{{.{name}}}");
        assert!(given.keys().all(|name| info.contains(&place(name))), "LOCK.INFO lacks one of these fields: {given:?}");
        let filled = given.iter().chain(usual).fold(info.clone(), |text, (name, is)| text.replace(&place(name), is));
        reply.replace("{info}", &filled)
    }

    /// The result of a command in a state.
    pub fn outcome(&self, state: &State, command: &str) -> &Outcome {
        let own = state.row.get(command).or(state.all.as_ref());
        &self.outcome[own.unwrap_or_else(|| &self.ordinary[command])]
    }

    pub fn state(&self, name: &str) -> &State {
        self.state.iter().find(|state| state.name == name).expect("a state of that name")
    }
}

/// What the placeholders of one case stand for.
pub struct Case {
    pub key: String,
    pub token: String,
    /// The server's clock when the case starts.
    pub start_us: i64,
    pub resp3: bool,
    pub n: String,
    pub command: String,
    /// Whether the server replies with maps in this protocol.
    pub maps: bool,
    /// What else the placeholders of a scene stand for.
    pub scene: BTreeMap<&'static str, String>,
}

impl Case {
    /// A case on `key` that starts now, with the token of a state.
    pub fn start(conn: &mut Conn, key: &str, token: &str, resp3: bool) -> Self {
        let mut case = Case {
            key: key.into(),
            token: String::new(),
            start_us: now_us(conn),
            resp3,
            n: String::new(),
            command: String::new(),
            maps: resp3 && knows_maps(conn),
            scene: BTreeMap::new(),
        };
        case.token = case.expand(token);
        case
    }

    /// Runs the commands that create a state; none of them may fail.
    pub fn set_up(&self, conn: &mut Conn, setup: &[&Words]) {
        for words in setup {
            let reply = conn.execute(&self.args(words));
            assert!(!matches!(reply, Reply::Error(_)), "{:?}: {reply:?}", words.words());
        }
    }

    pub fn args(&self, words: &Words) -> Vec<String> {
        words.words().into_iter().map(|word| self.expand(word)).collect()
    }

    /// The text with its constant placeholders replaced; the others stay.
    fn expand(&self, text: &str) -> String {
        let mut out = String::new();
        for piece in pieces(text) {
            match piece {
                Piece::Literal(literal) => out.push_str(literal),
                Piece::Name(name) => match self.constant(name) {
                    Some(value) => out.push_str(&value),
                    None => panic!("{{{name}}} is not a constant: {text}"),
                },
            }
        }
        out
    }

    fn constant(&self, name: &str) -> Option<String> {
        let nil = |resp2: &str| if self.resp3 { "_\r\n".to_string() } else { resp2.to_string() };
        Some(match name {
            "key" => self.key.clone(),
            "token" => self.token.clone(),
            "n" => self.n.clone(),
            "command" => self.command.clone(),
            "longest" => "k".repeat(4_096),
            "longer" => "k".repeat(4_097),
            "nil" => nil("$-1\r\n"),
            // A field that the case does not give.
            _ if name.starts_with('.') => nil("$-1\r\n"),
            "nil_array" => nil("*-1\r\n"),
            "push" => if self.resp3 { ">" } else { "*" }.into(),
            "map" => self.map(14),
            _ if self.scene.contains_key(name) => self.scene[name].clone(),
            _ => {
                if let Some(fields) = name.strip_prefix("map") {
                    return Some(self.map(fields.parse().ok()?));
                }
                let (unit, offset) = name.split_at(name.find(['+', '-'])?);
                let offset: i64 = offset.parse().ok()?;
                let now = match unit {
                    "s" => self.start_us / 1_000_000,
                    "ms" => self.start_us / 1000,
                    "us" => self.start_us,
                    "ns" => self.start_us * 1000,
                    _ => return None,
                };
                (now + offset).to_string()
            }
        })
    }

    /// The header of a map.
    fn map(&self, fields: usize) -> String {
        if self.maps {
            format!("%{fields}\r\n")
        } else {
            format!("*{}\r\n", 2 * fields)
        }
    }

    /// Panics unless the reply matches the pattern. Returns the token that `{new}` stands for.
    pub fn assert_reply(&self, pattern: &str, reply: &[u8], what: &str) -> Option<i64> {
        self.fit(pattern, reply).unwrap_or_else(|why| {
            panic!("{what}: {why}\n  expected {}\n  got      {}", show(pattern.as_bytes()), show(reply))
        })
    }

    fn fit(&self, pattern: &str, reply: &[u8]) -> Result<Option<i64>, String> {
        let mut rest = reply;
        let mut new = None;
        for piece in pieces(pattern) {
            let literal = match piece {
                Piece::Literal(literal) => literal.to_string(),
                Piece::Name(name) => match (self.constant(name), name.split_once("..")) {
                    (Some(value), _) => value,
                    (None, Some((low, high))) => {
                        let bound = |text: &str| text.parse::<i64>().map_err(|error| error.to_string());
                        let (number, after) = digits(rest)?;
                        if number < bound(low)? || number > bound(high)? {
                            return Err(format!("{number} is not in {{{name}}}"));
                        }
                        rest = after;
                        continue;
                    }
                    (None, None) if name == "new" => {
                        let (number, after) = digits(rest)?;
                        if number < self.start_us || number > self.start_us + CASE_US {
                            return Err(format!("{number} is not a token of this case"));
                        }
                        if self.token.parse::<i64>().is_ok_and(|token| number <= token) {
                            return Err(format!("{number} is not above {}", self.token));
                        }
                        new = Some(number);
                        rest = after;
                        continue;
                    }
                    (None, None) => return Err(format!("{{{name}}} is not a placeholder")),
                },
            };
            rest = rest
                .strip_prefix(literal.as_bytes())
                .ok_or_else(|| format!("no {} before {}", show(literal.as_bytes()), show(rest)))?;
        }
        if rest.is_empty() {
            Ok(new)
        } else {
            Err(format!("left over: {}", show(rest)))
        }
    }
}

enum Piece<'a> {
    Literal(&'a str),
    Name(&'a str),
}

/// A text cut at its placeholders.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let close = open + rest[open..].find('}').expect("a brace is closed");
        out.push(Piece::Literal(&rest[..open]));
        out.push(Piece::Name(&rest[open + 1..close]));
        rest = &rest[close + 1..];
    }
    out.push(Piece::Literal(rest));
    out
}

/// The whole number at the front, written as the server writes one, and what follows.
fn digits(bytes: &[u8]) -> Result<(i64, &[u8]), String> {
    let end = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = String::from_utf8_lossy(&bytes[..end]);
    let number = text.parse().map_err(|_| format!("no number at {}", show(bytes)))?;
    if end > 1 && text.starts_with('0') {
        return Err(format!("a leading zero: {text}"));
    }
    Ok((number, &bytes[end..]))
}

/// Everything that a command without an effect has to leave alone.
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    dump: Reply,
    expires_at_ms: i64,
    digest: String,
}

impl Snapshot {
    pub fn take(conn: &mut Conn, key: &str) -> Self {
        Snapshot {
            dump: conn.execute(&["DUMP", key]),
            expires_at_ms: expires_at_ms(conn, key),
            digest: conn.text(&["DEBUG", "DIGEST"]),
        }
    }
}

/// Whether a module can reply with a map (7.0); if not, it replies with a flat array in RESP3 too.
pub fn knows_maps(conn: &mut Conn) -> bool {
    // Such a server also describes a command in ten parts.
    match &conn.execute(&["COMMAND", "INFO", "lock.info"]).list()[0] {
        Reply::List(items) => items.len() >= 10,
        // A server without the module.
        _ => false,
    }
}

/// A value of ours, cut into its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub timestamp_us: i64,
    pub token: i64,
    /// What follows the token: the ID in 19 digits, a space and the owner.
    pub rest: String,
}

/// The value in the key, which must have the form of ours.
pub fn value(conn: &mut Conn, key: &str) -> Value {
    let text = conn.text(&["GET", key]);
    let number = |range: std::ops::Range<usize>| -> i64 {
        let digits = text.get(range).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        digits.unwrap_or_else(|| panic!("not ours: {text}")).parse().unwrap()
    };
    assert_eq!(text.get(10..11), Some("."), "not ours: {text}");
    Value { timestamp_us: number(0..10) * 1_000_000 + number(11..17), token: number(17..33), rest: text[33..].into() }
}

/// The expiry that a timestamp gets with a retention, rounded up.
pub fn retained_ms(timestamp_us: i64, retention_ms: i64) -> i64 {
    (timestamp_us + 999) / 1000 + retention_ms
}
