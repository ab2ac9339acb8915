//! Carries out the orders of clients/suite with this crate: `driver redis` or `driver redis-tokio`.
//! `docs/CLIENT_SPEC.md` describes the lines.

mod order;
mod place;
mod storm;
mod tasks;
mod threads;

use std::io::{BufRead, Write};

use order::{Answer, Failure, Order};
use serde_json::{Value, json};

/// The abilities of both forms. Code that uses a released hold does not compile, so a hold cannot be released twice.
const CAN: [&str; 26] = [
    "sentinel",
    "cluster",
    "tls",
    "unix",
    "cancel",
    "background",
    "session",
    "leader",
    "drop",
    "consumes",
    "storm",
    "census",
    "clock",
    "refusals",
    "scopes",
    "moves",
    "few_threads",
    "half_open",
    "queue",
    "once",
    "reentrant",
    "default_owner",
    "recover_free",
    "deadlock",
    "single_flight",
    "memory",
];

/// Sends warnings to stderr.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Debug
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// Writes one line of JSON for the suite.
pub(crate) fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    // If nobody reads the line, the orders are about to end.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

pub(crate) fn answer(n: &Value, answer: Answer) {
    say(&match answer {
        Ok(ok) => json!({"n": n, "ok": ok}),
        Err(Failure { kind, text }) => json!({"n": n, "error": {"kind": kind, "text": text}}),
    });
}

fn main() {
    let client = std::env::args().nth(1).unwrap_or_default();
    let _ = log::set_logger(&Stderr);
    log::set_max_level(log::LevelFilter::Debug);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (plays, more, storms): (fn(Order), &[&str], &[&str]) = match client.as_str() {
        "redis" => (threads::player(), &["pooled"], &["cancel"]),
        "redis-tokio" => (tasks::player(), &["stop"], &["drop", "abort"]),
        other => {
            eprintln!("no such client: {other}");
            std::process::exit(2);
        }
    };
    let can: Vec<&str> = CAN.into_iter().chain(more.iter().copied()).collect();
    let version = env!("REDIS_VERSION");
    let ready = json!({"event": "ready", "language": "rust", "client": client, "version": version, "can": can, "storms": storms});
    say(&ready);
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(order) => plays(Order(order)),
            Err(error) => eprintln!("not an order: {error}: {line}"),
        }
    }
    std::process::exit(0); // at once, without releasing anything
}
