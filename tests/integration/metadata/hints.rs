//! The hints that the command-line client shows while a command is typed, built from COMMAND DOCS.

use super::describes;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{server_binary, Server};

/// A command-line client that can print the hint for a line: next to the server, in the PATH, or fetched for the tests.
fn client_with_hints(port: u16) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let server = PathBuf::from(server_binary());
    let beside = server.parent().map(|dir| dir.join("bin")).filter(|dir| dir.is_absolute());
    let dirs = [beside, Some(PathBuf::new()), Some(root.join(".servers/valkey-8.1.8/bin"))];
    let all = dirs.into_iter().flatten().flat_map(|dir| [dir.join("redis-cli"), dir.join("valkey-cli")]);
    all.into_iter().find(|client| hint(client, port, "GET ").as_deref() == Some("key"))
}

fn hint(client: &Path, port: u16, line: &str) -> Option<String> {
    let args = ["-p", &port.to_string(), "--test_hint", line];
    let output = Command::new(client).args(args).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().into())
}

#[test]
fn redis_cli_hints_the_remaining_arguments() {
    let server = Server::start();
    if !describes(&mut server.conn(), "redis-cli hints") {
        return;
    }
    let Some(client) = client_with_hints(server.port()) else {
        eprintln!("skipped: redis-cli hints: no client with --test_hint (Redis 7.2, Valkey 8) was found");
        return;
    };
    let notify = "[NOTIFY channel|SNOTIFY shard-channel]";
    let rest = format!("[WAIT wait] [ID id] [OWNER owner] [SESSION] [DETAILS] [SHARED|LIMIT limit] {notify} [RESULT]");
    for (line, expected) in [
        ("lock.acquire ", format!("key EX seconds|PX milliseconds {rest}")),
        ("lock.acquire door EX ", format!("seconds {rest}")),
        ("LOCK.ACQUIRE door PX 500 ", rest.clone()),
        (
            "lock.acquire door PX 500 SESSION ",
            format!("[WAIT wait] [ID id] [OWNER owner] [DETAILS] [SHARED|LIMIT limit] {notify} [RESULT]"),
        ),
        ("lock.extend door 5 ", "EX seconds|PX milliseconds".into()),
        ("lock.release ", "key token [RESULT value]".into()),
        ("lock.info door ", "[FULL]".into()),
        (
            "lock.macquire 2 a b EX 5 ",
            format!("[key ...] EX seconds|PX milliseconds [WAIT wait] [ID id] [OWNER owner] [SESSION] {notify}"),
        ),
        ("lock.scan 0 ", "[MATCH pattern] [COUNT count] [STATE state] [CLIENT client-id]".into()),
        ("lock.top ", "[COUNT count] [BY by]".into()),
    ] {
        assert_eq!(hint(&client, server.port(), line).unwrap(), expected, "{line}");
    }
}
