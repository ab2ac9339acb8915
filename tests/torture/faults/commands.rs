//! Commands to all servers: CLIENT PAUSE, CLIENT KILL, CONFIG SET.

use super::ms;
use crate::history::Effect;
use crate::site::{execute, Site};
use crate::world::World;
use testkit::Reply;

/// Pauses writes or everything: waits that begin or are granted during the pause are late.
pub fn pause(world: &World, site: &Site, for_ms: u64, all: bool) {
    world.with(&[Effect::Stall], || {
        site.send_all(&["CLIENT", "PAUSE", &for_ms.to_string(), if all { "ALL" } else { "WRITE" }]);
        world.sleep(ms(for_ms));
        // A stalled server may start its pause later; a dead one has no pause.
        for port in site.ports() {
            let _ = (0..3).find(|_| execute(port, &["CLIENT", "UNPAUSE"]).is_some());
        }
    });
}

const COMMANDS: [&str; 8] = ["lock.", "setnx", "get", "getset", "set ", "del", "eval", "NULL"];

/// Kills the clients that work with locks, but spares the other track's faults.
pub fn kill_clients(site: &Site) {
    for port in site.ports() {
        let list = match execute(port, &["CLIENT", "LIST"]) {
            Some(Reply::Text(list)) => String::from_utf8_lossy(&list).into_owned(),
            Some(Reply::Other(list)) => list,
            _ => continue,
        };
        for line in list.lines() {
            let value = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
            let (Some(id), Some(command)) = (value("id="), value("cmd=")) else { continue };
            if COMMANDS.iter().any(|prefix| format!("{command} ").starts_with(prefix)) {
                execute(port, &["CLIENT", "KILL", "ID", id]);
            }
        }
    }
}

/// The margin stays: it may become smaller only while no lock is held.
const SETTINGS: [(&str, &str, &str); 4] = [
    ("lock.retention-ms", "0", "400"),
    ("lock.place-ms", "0", "10000"),
    ("lock.max-waiters", "1", "5000"),
    ("hz", "200", "10"),
];

/// Sets a different value, and restores it after a while.
pub fn configure(world: &World, site: &Site, which: usize) {
    let (name, value, usual) = SETTINGS[which];
    site.send_all(&["CONFIG", "SET", name, value]);
    world.sleep(ms(400));
    site.send_all(&["CONFIG", "SET", name, usual]);
}
