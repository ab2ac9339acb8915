//! Clients of SET NX PX with compare and delete.

use super::Client;
use crate::history::{Action, Outcome};

const DROP: &str = "if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

pub fn work(client: &mut Client<'_>, key: &str, lease_ms: u64) {
    let (lease, lease_text) = (i64::try_from(lease_ms * 1_000).unwrap(), lease_ms.to_string());
    while !client.world.is_over() {
        if client.link.server().is_none() {
            return;
        }
        let secret = format!("plain-{}-{}", client.number, client.dice.next());
        let command = ["SET", key, &secret, "NX", "PX", &lease_text];
        if matches!(client.run(key, Action::PlainTake { lease }, &command), Outcome::Granted(_)) {
            client.sleep_up_to(30);
            if client.dice.percent(85) {
                client.run(key, Action::PlainDrop, &["EVAL", DROP, "1", key, &secret]);
            }
        }
        client.sleep_up_to(40);
    }
}
