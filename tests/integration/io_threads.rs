//! Servers that parse commands in I/O threads, beside the main thread.

use std::thread;
use testkit::{encoded, until, Conn, Reply, Server};

const CLIENTS: usize = 4;
const ROUNDS: usize = 40;
const PIPELINED: usize = 250;

/// Commands of several keys, on several connections at once.
fn take_and_extend(server: &Server) {
    let work = |client: usize| {
        let mut conn = server.conn();
        let names = ["a", "b"].map(|name| format!("{{{client}}}{name}"));
        let acquire = ["LOCK.MACQUIRE", "2", &names[0], &names[1], "PX", "600000"];
        let token = conn.int(&acquire).to_string();
        let extend = ["LOCK.MEXTEND", "2", &names[0], &names[1], &token, "PX", "600000"];
        let too_few = ["LOCK.MACQUIRE", "9", &names[0], &names[1], "PX", "600000"];
        let batch: Vec<u8> = [encoded(&acquire), encoded(&extend), encoded(&too_few)].concat().repeat(PIPELINED);
        for _ in 0..ROUNDS {
            conn.send_bytes(&batch);
            for _ in 0..PIPELINED {
                assert!(conn.read().is_nil(), "it is held");
                assert_eq!(conn.read(), Reply::Int(1));
                let refused = conn.read();
                assert!(matches!(&refused, Reply::Error(text) if text.starts_with("ERR numkeys")), "{refused:?}");
            }
        }
    };
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || work(client));
        }
    });
    assert!(!server.log().contains("internal error"), "{}", server.log_tail(40));
}

/// Such a thread looks for the keys of a command. If it found none, Redis 8 used to ask the module for them, beside the
/// main thread.
#[test]
fn keys_are_found_while_other_commands_run() {
    take_and_extend(&Server::with().args(&["--io-threads", "4"]).start());
}

/// In a cluster, Valkey and Redis 8.2 used to ask the module for every command of several keys.
#[test]
fn keys_are_found_in_a_cluster_while_other_commands_run() {
    let server = Server::with().args(&["--io-threads", "4", "--cluster-enabled", "yes", "--appendonly", "yes"]).start();
    let mut conn = server.conn();
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    conn.ok(&[&["CLUSTER", "ADDSLOTS"], &slots.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    until("the cluster is up", || (conn.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok")).then_some(()));
    take_and_extend(&server);
    // Those servers also count nested calls in the thread that asks, and replicate there.
    let size = |conn: &mut Conn| conn.info("persistence", "aof_current_size");
    let before = size(&mut conn);
    conn.ok(&["SET", "{0}a", "1"]);
    until("the AOF grows", || (size(&mut conn) != before).then_some(()));
}
