//! lock-top with real servers: the output of `--once`, its messages about servers that it cannot ask, and the view in a
//! real terminal (tmux).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects, missing_docs)]

mod held;
mod members;
mod once;
mod page;
mod rights;
mod screen;
mod secure;
mod terminal;
mod trouble;

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use testkit::Server;

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// lock-top with these arguments, in an empty environment.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lock-top"));
    command.args(args).env_remove("REDISCLI_AUTH").env_remove("NO_COLOR").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    program(args).output().expect("lock-top runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The output of `--once`.
fn once(args: &[&str]) -> String {
    text(&run(&[&["--once"], args].concat()).stdout)
}

/// The output of `--once --json`.
fn json(args: &[&str]) -> Value {
    let text = once(&[&["--json"], args].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// Asserts exit status 1 and returns the one line that says why a server cannot be asked.
fn complaint(args: &[&str]) -> String {
    let output = run(&[&["--once"], args].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = text(&output.stdout);
    let said: Vec<&str> = text.lines().filter(|line| line.contains(": ")).collect();
    assert_eq!(said.len(), 1, "{text}");
    said[0].into()
}

/// The server with this address in a JSON document.
fn server_of<'a>(document: &'a Value, address: &str) -> &'a Value {
    let servers = document["servers"].as_array().unwrap();
    servers.iter().find(|server| server["address"] == address).unwrap_or_else(|| panic!("no {address}: {document:#}"))
}
