//! A running program of a language, that takes a lock when it is told to.
//!
//! | to it | from it |
//! |---|---|
//! | `hold`, with a port, a key and so on | `held` with the token; or `error` |
//! | `leave`: the work is done | `left`; or `error` |
//! | `fail`: the work fails | `error` |
//! | `cancel`: wants it no longer while it waits | `error` |
//! | `ping`: uses the client that the application has besides | `pong` |
//! | | `stopped`, when the work is stopped because the lock is lost; then `error` |

use std::fmt::Debug;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::{json, Value};

use super::runtimes::{languages, Language};
use crate::support::program::Program;

/// Nobody listens there (tcpmux), and it is not given to another test in the meantime.
pub const NOBODY: u16 = 1;

/// What a lock is wanted with.
#[derive(Clone, Serialize)]
pub struct Hold {
    pub port: u16,
    pub protocol: u8,
    pub key: String,
    pub prefix: &'static str,
    pub lease_ms: u64,
    pub wait_ms: u64,
    pub timeout_ms: u64,
    pub owner: &'static str,
    pub session: bool,
    pub fallback: bool,
}

impl Hold {
    /// A lock of this language, with a lease that is longer than the test, under the newest RESP that it speaks.
    pub fn of(language: &Language, port: u16) -> Self {
        Self {
            port,
            protocol: language.protocols[language.protocols.len() - 1],
            key: format!("lock:{}", language.name),
            prefix: "",
            lease_ms: 60_000,
            wait_ms: 0,
            timeout_ms: 5_000,
            owner: "driver",
            session: false,
            fallback: false,
        }
    }

    /// The same with a lock of its own.
    pub fn variant(mut self, variant: impl Debug) -> Self {
        self.key = format!("{}:{variant:?}", self.key);
        self
    }
}

/// What a driver says.
#[derive(Debug, PartialEq)]
pub enum Event {
    Held { token: Option<i64>, warned: String },
    Left,
    Pong,
    Stopped { left_ms: f64 },
    Error { kind: String, name: String, text: String },
}

/// A running program; dropped, it is killed.
pub struct Driver(Program);

impl Driver {
    pub fn start(language: &Language) -> Self {
        let env = language.env.iter().map(|(name, value)| (name, value));
        Self(Program::start(Command::new(&language.program).args(&language.args).envs(env)))
    }

    /// Starts it and orders it to take the lock.
    pub fn asking(language: &Language, hold: &Hold) -> Self {
        let mut driver = Self::start(language);
        driver.hold(hold);
        driver
    }

    /// Orders it to take the lock; it has it.
    pub fn holding(language: &Language, hold: &Hold) -> (Self, Option<i64>) {
        let mut driver = Self::asking(language, hold);
        let token = driver.held();
        (driver, token)
    }

    pub fn hold(&mut self, hold: &Hold) {
        let mut order = serde_json::to_value(hold).unwrap();
        order["do"] = "hold".into();
        self.0.say(order);
    }

    /// The work is done; the lock is given back without an error.
    pub fn leave(&mut self) {
        self.say("leave");
        assert_eq!(self.next(), Event::Left);
    }

    pub fn say(&mut self, word: &str) {
        self.0.say(json!({ "do": word }));
    }

    /// The client that the application has besides can be used.
    pub fn ping(&mut self, hold: &Hold) {
        self.0.say(json!({ "do": "ping", "port": hold.port, "protocol": hold.protocol }));
        assert_eq!(self.next(), Event::Pong);
    }

    /// What it says next.
    pub fn next(&mut self) -> Event {
        parse(&self.0.hear())
    }

    /// Whether it says nothing for so long.
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        self.0.is_silent_for(time)
    }

    /// It says that it has the lock: the token.
    pub fn held(&mut self) -> Option<i64> {
        match self.next() {
            Event::Held { token, .. } => token,
            other => panic!("not held: {other:?}"),
        }
    }

    /// It says that it failed in this way, in a text that names the lock or what is wrong: the text.
    pub fn error(&mut self, expected: &str) -> String {
        match self.next() {
            Event::Error { kind, name, text } if kind == expected => {
                assert!(!name.is_empty() && !text.is_empty(), "{kind} '{name}' '{text}'");
                text
            }
            other => panic!("expected an error of the kind {expected}: {other:?}"),
        }
    }

    /// The work is stopped while the lock is still held for certain; the error says why.
    pub fn is_stopped_in_time(&mut self) -> String {
        match self.next() {
            Event::Stopped { left_ms } => assert!(left_ms > 0.0, "stopped {left_ms} ms before the lease was over"),
            other => panic!("not stopped: {other:?}"),
        }
        self.error("lost")
    }

    /// Ends it without a chance to tidy up.
    pub fn kill(&mut self) {
        self.0.kill();
    }
}

fn parse(line: &str) -> Event {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON: {line}: {error}"));
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_string();
    match value["event"].as_str() {
        Some("held") => {
            assert!(value["token"].is_null() || value["token"].is_i64(), "not a whole number: {line}");
            Event::Held { token: value["token"].as_i64(), warned: text("warned") }
        }
        Some("left") => Event::Left,
        Some("pong") => {
            assert_eq!(value["reply"], "hello");
            Event::Pong
        }
        Some("stopped") => Event::Stopped { left_ms: value["left_ms"].as_f64().expect("a number") },
        Some("error") => Event::Error { kind: text("kind"), name: text("name"), text: text("text") },
        _ => panic!("not an event: {line}"),
    }
}

/// Plays the scenario in every language that is installed, at the same time.
pub fn in_each(scenario: impl Fn(&Language) + Sync) {
    let roles = languages().iter().map(|language| (language.name.into(), language, ()));
    play(roles.collect(), |language, ()| scenario(language));
}

/// Plays each variant of it as well.
pub fn in_each_with<V: Copy + Debug + Send>(variants: &[V], scenario: impl Fn(&Language, V) + Sync) {
    let role = |language: &'static Language, variant: V| (format!("{} {variant:?}", language.name), language, variant);
    let roles = languages().iter().flat_map(|language| variants.iter().map(move |variant| role(language, *variant)));
    play(roles.collect(), scenario);
}

/// Plays it with each version of RESP that the client library speaks.
pub fn in_each_and_protocol(scenario: impl Fn(&Language, u8) + Sync) {
    in_each_with(&[2, 3], |language, protocol| {
        if language.protocols.contains(&protocol) {
            scenario(language, protocol);
        }
    });
}

fn play<V: Send>(roles: Vec<(String, &'static Language, V)>, scenario: impl Fn(&Language, V) + Sync) {
    let scenario = &scenario;
    let failed: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = roles
            .into_iter()
            .map(|(name, language, variant)| {
                let thread = thread::Builder::new().name(name.clone());
                (name, thread.spawn_scoped(scope, move || scenario(language, variant)).unwrap())
            })
            .collect();
        threads.into_iter().filter_map(|(name, thread)| thread.join().err().map(|_| name)).collect()
    });
    assert!(failed.is_empty(), "failed in {}", failed.join(", "));
}
