//! docs/PORTABLE.md and the Lua file: the page's examples run, the file stays short, and its texts are the module's.

use super::client::library;
use std::process::Command;
use testkit::{project_file, skipped, Server};

/// The page's first block in this language.
fn block(language: &str) -> String {
    let page = project_file("docs/PORTABLE.md");
    let opening = format!("```{language}\n");
    let (_, rest) = page.split_once(&opening).expect("the page has such a block");
    rest.split_once("```").expect("it ends").0.to_string()
}

#[test]
fn the_shell_commands_load_it_and_take_locks() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        skipped("the shell commands", "there is no redis-cli");
        return;
    }
    let (server, mut conn) = Server::with().without_module().connected();
    if conn.is_before_7() {
        skipped("the shell commands", "functions need 7.0");
        return;
    }
    let lines = block("sh").replace("redis-cli", &format!("redis-cli -p {}", server.port()));
    let output = Command::new("sh").args(["-euc", &lines]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said[0], "redis_lock");
    for (key, token, owner) in [("report", said[1], ""), ("door", said[2], " alice")] {
        assert_eq!(conn.text(&["GET", key])[17..], format!("{token}{owner}"), "{said:?}");
    }
}

#[test]
fn the_file_is_short_and_opens_as_a_library() {
    let library = library();
    let lines = library.lines().count();
    assert!(lines <= 890, "{lines} lines");
    assert!(library.starts_with("#!lua name=redis_lock\n"));
    assert!(library.lines().all(|line| line.len() <= 120), "a line is longer than 120 characters");
}

/// Every error text in the file, up to its placeholder, is one of the commands' texts, or is on the page.
#[test]
fn its_errors_are_documented_or_match_the_commands() {
    let (library, page) = (library(), project_file("docs/PORTABLE.md"));
    let known = project_file("core/src/lock/error.rs");
    let mut texts = Vec::new();
    for line in library.lines().filter(|line| !line.trim_start().starts_with("--")) {
        let quoted = line.split('\'').skip(1).step_by(2).chain(line.split('"').skip(1).step_by(2));
        texts.extend(quoted.filter(|text| text.contains(" is ") || text.contains("syntax error")));
    }
    assert!(texts.len() > 12, "{texts:?}");
    for text in texts {
        let text = text.trim_start_matches("ERR ").trim_start_matches("CLOCK ").split('%').next().unwrap();
        let text = text.trim_end();
        assert!(known.contains(text) || page.contains(text), "'{text}' is in neither");
    }
}
