//! Clients are killed from the side of the server: whoever works with locks, the faults of the other lane spared.

use crate::site::{tell, Site};
use crate::support::Reply;

const COMMANDS: [&str; 8] = ["lock.", "setnx", "get", "getset", "set ", "del", "eval", "NULL"];

pub fn run(site: &Site) -> bool {
    for port in site.ports() {
        let list = match tell(port, &["CLIENT", "LIST"]) {
            Some(Reply::Text(list)) => String::from_utf8_lossy(&list).into_owned(),
            Some(Reply::Other(list)) => list,
            _ => continue,
        };
        for line in list.lines() {
            let value = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
            let (Some(id), Some(command)) = (value("id="), value("cmd=")) else { continue };
            if COMMANDS.iter().any(|prefix| format!("{command} ").starts_with(prefix)) {
                tell(port, &["CLIENT", "KILL", "ID", id]);
            }
        }
    }
    true
}
