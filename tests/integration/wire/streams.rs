//! The replication of several holders and several keys, command by command as in part seven of the fixture. A
//! replica without the module has the same keys.

use super::fixture::{retained_ms, Case, Fixture, Words};
use super::{Holders, RETENTION_MS};
use crate::replication::Stream;
use testkit::{show, Conn, Server};

/// A timestamp as it is written in a key.
fn text(timestamp_us: i64) -> String {
    format!("{}.{:06}", timestamp_us / 1_000_000, timestamp_us % 1_000_000)
}

/// When the token of the case ends, in a sorted set or a string.
fn end_of(conn: &mut Conn, case: &Case) -> Option<i64> {
    let holders = Holders::of(conn, &case.key);
    holders.has(&case.token).then(|| holders.end_of(&case.token))
}

/// What is between MULTI and EXEC, key by key.
fn by_key(mut commands: Vec<Vec<String>>) -> Vec<Vec<String>> {
    if let [begin, within @ .., end] = &mut commands[..] {
        if begin[0] == "MULTI" && end[0] == "EXEC" {
            within.sort_by(|one, other| one[1].cmp(&other[1]));
        }
    }
    commands
}

#[test]
fn several_holders_and_several_keys_replicate_as_the_fixture_says() {
    let server = Server::with().args(&["--repl-diskless-sync-delay", "0"]).start();
    let replica = Server::with().without_module().start();
    replica.replicate(&server);
    let mut conn = server.conn();
    let fixture = Fixture::load();
    let mut stream = Stream::of(&server);
    for (index, one) in fixture.stream.iter().enumerate() {
        let key = format!("{{stream}}{index}");
        let mut case = Case::start(&mut conn, &key, "{us-40000000}", false);
        let setup: Vec<&Words> = one.setup.iter().collect();
        case.set_up(&mut conn, &setup);
        stream.take();

        let reply = conn.raw(&case.args(&one.command));

        if let Some(new) = case.assert_reply(&one.reply, &reply, &one.name) {
            let timestamp = new + 31_000_000;
            case.scene.insert("new", new.to_string());
            case.scene.insert("timestamp", text(timestamp));
            case.scene.insert("expires", retained_ms(timestamp, RETENTION_MS).to_string());
        }
        if let Some(end) = end_of(&mut conn, &case) {
            case.scene.insert("end", text(end));
            case.scene.insert("end_expires", retained_ms(end, RETENTION_MS).to_string());
        }
        let expected: Vec<Vec<String>> = one.stream.iter().map(|words| case.args(words)).collect();
        assert_eq!(by_key(stream.take()), by_key(expected), "{}, which answered {}", one.name, show(&reply));
    }
    server.wait_offset(&replica);
    assert_eq!(replica.conn().text(&["DEBUG", "DIGEST"]), conn.text(&["DEBUG", "DIGEST"]));
}
