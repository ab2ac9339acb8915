//! What every step writes to the replication stream and the AOF: effects only, byte for byte, and nothing if nothing
//! changed.

use super::{waiting, Queue, Subscriber};
use crate::kinds::Kind;
use crate::replication::{words, Stream};
use std::fs;
use testkit::{timestamp_us, until, Conn, Server};

const RETENTION_MS: i64 = 60_000;

/// The SET that would write a key's value.
fn set_of(conn: &mut Conn, key: &str) -> Vec<String> {
    let value = conn.text(&["GET", key]);
    let pxat = (timestamp_us(&value) + 999).div_euclid(1000) + RETENTION_MS;
    words(&["SET", key, &value, "PXAT", &pxat.to_string()])
}

/// A set's only member, with its score.
fn member_of(conn: &mut Conn, key: &str) -> (String, String) {
    let reply = conn.execute(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
    (reply.list()[1].text(), reply.list()[0].text())
}

fn del(key: &str) -> Vec<String> {
    words(&["DEL", key])
}

#[test]
fn asking_and_leaving_the_queue_replicate_nothing() {
    let Some(mut queue) = Queue::with(&["claim-ms", "20"]) else { return };
    let token = queue.locks.hold();
    let mut stream = Stream::of(&queue.locks.server);
    stream.take();
    queue.ask("7");
    queue.ask("7");
    queue.ask_with(&["LOCK.MACQUIRE", "2", "k", "l"], "8", &["OWNER", "bob"]);
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "9", &["NOTIFY", "nobody"]);
    let short = ["LOCK.ACQUIRE", "k", "PX", "30000", "WAIT", "20", "ID", "10", "NOTIFY", "c"];
    assert_eq!(queue.execute(&short), waiting());
    queue.subscriber.gets("timeout 10 k");
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 1);
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "CHANNEL", "c"]).int(), 1);
    assert_eq!(stream.take(), Vec::<Vec<String>>::new());
    // Its channel has no subscriber: only the release happens.
    super::pass(&mut queue.locks.conn, 30);
    queue.locks.release(token);
    assert_eq!(stream.take(), [del("k")]);
}

#[test]
fn a_grant_is_one_set_and_a_claim_another() {
    let Some(mut queue) = Queue::start() else { return };
    let mut stream = Stream::of(&queue.locks.server);
    let token = queue.locks.hold();
    let held = set_of(&mut queue.locks.conn, "k");
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["OWNER", "alice"]);
    queue.locks.release(token);
    let granted = set_of(&mut queue.locks.conn, "k");
    assert_eq!(granted[2].len(), 33, "{granted:?}");
    let token = queue.locks.conn.int(&["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7", "OWNER", "alice"]);
    let claimed = set_of(&mut queue.locks.conn, "k");
    assert!(claimed[2].ends_with("0000000000000000007 alice"), "{claimed:?}");
    queue.locks.release(token);
    assert_eq!(stream.take(), [held, granted, claimed, del("k")]);
}

#[test]
fn an_unclaimed_grant_replicates_as_set_and_is_undone() {
    let Some(mut queue) = Queue::with(&["claim-ms", "100"]) else { return };
    let mut stream = Stream::of(&queue.locks.server);
    let token = queue.locks.hold();
    stream.take();
    queue.ask("7");
    queue.locks.release(token);
    let granted = set_of(&mut queue.locks.conn, "k");
    until("it is free", || (queue.execute(&["EXISTS", "k"]).int() == 0).then_some(()));
    assert_eq!(stream.take(), [granted, del("k")]);
    // This time there is a predecessor that never released.
    queue.hold_until(&["OWNER", "bob"], |queue| queue.ask("8"));
    queue.subscriber.gets("granted 7 k");
    queue.subscriber.gets("granted 8 k");
    // The state does not show it: an unclaimed grant whose time has passed is also expired until it is passed on.
    let restored =
        until("it is restored", || Some(set_of(&mut queue.locks.conn, "k")).filter(|set| set[2].ends_with(" bob")));
    let commands = stream.take();
    let [held, extended, granted, last] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((&restored, &extended[2]), (last, &last[2]), "as the predecessor left it");
    assert_eq!((held[2].len(), granted[2].len()), (37, 33), "{commands:?}");
    // And the grant to the next waiter, in one change.
    let mut other = Subscriber::of(&queue.locks.server, "d");
    assert_eq!(queue.execute(&["DEL", "k"]).int(), 1);
    let token = queue.locks.hold();
    stream.take();
    queue.ask("9");
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "10", &["NOTIFY", "d"]);
    queue.locks.release(token);
    let first = set_of(&mut queue.locks.conn, "k");
    other.gets("granted 10 k");
    let second = set_of(&mut queue.locks.conn, "k");
    assert_eq!(stream.take(), [first, second]);
}

#[test]
fn cancelling_a_grant_replicates_like_releasing_it() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    queue.ask("7");
    let mut stream = Stream::of(&queue.locks.server);
    queue.locks.release(token);
    let granted = set_of(&mut queue.locks.conn, "k");
    assert_eq!(queue.execute(&["LOCK.CANCEL", "k", "7"]).int(), 1);
    until("it is free", || (queue.execute(&["EXISTS", "k"]).int() == 0).then_some(()));
    assert_eq!(stream.take(), [granted, del("k")]);
}

#[test]
fn an_owner_replaces_a_member_without_one() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    queue.ask_with(&["LOCK.ACQUIRE", "k"], "7", &["SHARED", "OWNER", "alice"]);
    let mut stream = Stream::of(&queue.locks.server);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let (score, member) = member_of(&mut queue.locks.conn, "k");
    let granted = stream.take();
    let names: Vec<&str> = granted.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["MULTI", "DEL", "ZADD", "PEXPIREAT", "EXEC"], "{granted:?}");
    assert_eq!((granted[2][3].as_str(), member.len()), (member.as_str(), 16));
    let scores = [&granted[2][2], &score].map(|score| score.parse::<f64>().unwrap());
    assert!((scores[0] - scores[1]).abs() < 1e-5, "{scores:?}");
    let claim = ["LOCK.ACQUIRE", "k", "PX", "30000", "ID", "7", "SHARED", "OWNER", "alice"];
    queue.execute(&claim).int();
    let (_, named) = member_of(&mut queue.locks.conn, "k");
    assert_eq!(named, format!("{member}0000000000000000007 alice"));
    let claimed = stream.take();
    let mut changes: Vec<(&str, &str)> = claimed
        .iter()
        .filter(|command| command.len() > 1)
        .map(|command| (command[0].as_str(), command.last().unwrap().as_str()))
        .collect();
    changes.retain(|(name, _)| *name != "PEXPIREAT");
    changes.sort_unstable();
    assert_eq!(changes, [("ZADD", named.as_str()), ("ZREM", member.as_str())], "{claimed:?}");
    assert_eq!((claimed[0][0].as_str(), claimed.last().unwrap()[0].as_str()), ("MULTI", "EXEC"), "one change");
}

#[test]
fn several_keys_are_granted_and_claimed_in_transactions() {
    let Some(mut queue) = Queue::start() else { return };
    let token = queue.locks.hold();
    queue.ask_with(&Kind::Several.acquire(&[]), "7", &[]);
    let mut stream = Stream::of(&queue.locks.server);
    queue.locks.release(token);
    queue.subscriber.gets("granted 7 k");
    let both = |queue: &mut Queue| ["k", "l"].map(|key| set_of(&mut queue.locks.conn, key));
    let sets = |commands: Vec<Vec<String>>| {
        let mut sets: Vec<Vec<String>> = commands.into_iter().filter(|command| command[0] == "SET").collect();
        sets.sort();
        sets
    };
    let granted = both(&mut queue);
    let commands = stream.take();
    // The release and its hand-off are one change.
    let names: Vec<&str> = commands.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(names, ["MULTI", "DEL", "SET", "SET", "EXEC"], "{commands:?}");
    assert_eq!(sets(commands), granted);
    queue.execute(&Kind::Several.acquire(&["PX", "30000", "ID", "7"])).int();
    let claimed = both(&mut queue);
    let commands = stream.take();
    assert_eq!((&commands[0][0], &commands[3][0]), (&"MULTI".to_string(), &"EXEC".to_string()), "{commands:?}");
    assert_eq!(sets(commands), claimed);
}

#[test]
fn replicas_without_the_module_and_the_aof_agree() {
    let server = Server::with()
        .args(&["--appendonly", "yes", "--appendfsync", "always"])
        .module_args(&["margin-ms", "0", "claim-ms", "100"])
        .start();
    let Some(mut queue) = Queue::on(server) else { return };
    let replica = Server::with().without_module().start();
    replica.replicate(&queue.locks.server);
    let mut expected = Vec::new();
    let token = queue.locks.hold();
    expected.push(set_of(&mut queue.locks.conn, "k"));
    queue.ask("7");
    queue.locks.release(token);
    expected.push(set_of(&mut queue.locks.conn, "k"));
    queue.subscriber.gets("granted 7 k");
    let token = queue.claim("7");
    expected.push(set_of(&mut queue.locks.conn, "k"));
    queue.ask("8");
    queue.locks.release(token);
    expected.push(set_of(&mut queue.locks.conn, "k"));
    until("it is free", || (queue.execute(&["EXISTS", "k"]).int() == 0).then_some(()));
    expected.push(del("k"));
    queue.locks.server.wait_offset(&replica);
    let digest = queue.locks.conn.text(&["DEBUG", "DIGEST"]);
    assert_eq!(replica.conn().text(&["DEBUG", "DIGEST"]), digest);
    let files = fs::read_dir(queue.locks.server.dir().join("appendonlydir")).unwrap().map(|file| file.unwrap().path());
    let aof: String = files
        .filter(|file| file.to_string_lossy().contains(".incr."))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let bytes: String = expected.iter().map(|command| String::from_utf8(testkit::encoded(command)).unwrap()).collect();
    assert!(aof.ends_with(&bytes), "{aof}\n--- is not\n{bytes}");
    assert!(!aof.to_uppercase().contains("LOCK."), "no module command");
}
