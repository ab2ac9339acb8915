//! Several holders of one lock and several locks at once: who is admitted, what is written, who is served
//! in which order, and what becomes of it all in replicas, files and clusters.

mod admitted;
mod again;
mod before;
mod circles;
mod crowd;
mod evicted;
mod expiry;
mod foreign;
mod guards;
mod kept;
mod lapsed;
mod many;
mod many_keys;
mod moved;
mod order;
mod others;
mod philosophers;
mod random;
mod restart;
mod scan;
mod sessions;
mod slots;
mod timers;
mod waits;
mod watch;

// The plain account of what is promised is that of the model.
#[path = "../../core/tests/model/several/drive.rs"]
mod drive;
#[path = "../../core/tests/model/several/plain.rs"]
mod plain;

use crate::support::Conn;

/// LOCK.ACQUIRE; the token.
fn acquire(conn: &mut Conn, args: &[&str]) -> String {
    conn.int(&[&["LOCK.ACQUIRE"], args].concat()).to_string()
}

/// LOCK.MACQUIRE; the token.
fn acquire_all(conn: &mut Conn, keys: &[&str], args: &[&str]) -> String {
    conn.int(&[&["LOCK.MACQUIRE", &keys.len().to_string()], keys, args].concat()).to_string()
}
