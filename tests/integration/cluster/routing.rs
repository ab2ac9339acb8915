//! Cluster clients find the right node for LOCK.* on their own: they ask the server for the key's position in a
//! command, and follow MOVED.

use super::in_memory;
use super::nodes::Move;
use redis::cluster::ClusterClient;
use std::process::Command;

#[test]
fn the_redis_crate_finds_a_locks_node() {
    let cluster = in_memory();
    let addresses = cluster.nodes.iter().map(|node| format!("redis://127.0.0.1:{}/", node.port));
    let mut conn = ClusterClient::new(addresses).unwrap().get_connection().unwrap();
    let keys = cluster.a_key_for_each_master("crate");
    let mut tokens = Vec::new();
    for key in &keys {
        let acquire = || redis::cmd("LOCK.ACQUIRE").arg(key).arg("PX").arg(60_000).clone();
        let token: i64 = acquire().query(&mut conn).unwrap();
        assert!(cluster.master_of(key).conn().int(&["LOCK.CHECK", key, &token.to_string()]) > 0, "{key}");
        let refused: Option<i64> = acquire().query(&mut conn).unwrap();
        assert_eq!(refused, None, "{key}");
        tokens.push(token);
    }
    // A slot that has moved since the client read the slot map.
    Move::all(cluster.master_of(&keys[0]), cluster.other_master(&keys[0]), &keys[0]);
    for (key, token) in keys.iter().zip(tokens) {
        for (command, reply) in [("LOCK.RELEASE", 1), ("LOCK.CHECK", 0)] {
            let got: i64 = redis::cmd(command).arg(key).arg(token).query(&mut conn).unwrap();
            assert_eq!(got, reply, "{command} {key}");
        }
    }
}

#[test]
fn redis_cli_follows_redirects_to_a_locks_node() {
    let cluster = in_memory();
    let cli = |args: &[&str]| {
        let port = cluster.nodes[0].port.to_string();
        let output = Command::new("redis-cli").args(["-c", "-p", &port]).args(args).output().expect("redis-cli runs");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    for key in cluster.a_key_for_each_master("cli") {
        let token = cli(&["LOCK.ACQUIRE", &key, "PX", "60000"]);
        assert!(cluster.master_of(&key).conn().int(&["LOCK.CHECK", &key, &token]) > 0, "{key}: {token}");
        assert_eq!(cli(&["LOCK.RELEASE", &key, &token]), "1", "{key}");
    }
}
