//! A server's replication sinks: replicas, the backlog and the AOF. Without any, a command counts its writes and builds
//! no effects. A LOCK.* command never reaches a sink; one that arrives from a master or an AOF is refused and logged.
//! `tests/torture/sinks` attaches and detaches sinks under load.

mod refused;
mod unreplicated;

use testkit::{skipped, until, Conn};

/// The number of writes that were not replicated.
pub fn unreplicated(conn: &mut Conn) -> u64 {
    conn.info("lock", "lock_unreplicated_writes").expect("a field of INFO").parse().unwrap()
}

/// Writes until the module has found that there is no replication sink; false if the server cannot detect it.
pub fn until_no_sink(conn: &mut Conn) -> bool {
    if conn.is_before_7() {
        skipped("writes without a sink", "before 7.0 every write is replicated");
        return false;
    }
    let before = unreplicated(conn);
    until("the module finds no sink", || {
        write(conn);
        (unreplicated(conn) > before).then_some(())
    });
    true
}

/// Takes and releases a lock.
pub fn write(conn: &mut Conn) {
    let token = conn.int(&["LOCK.ACQUIRE", "warm", "PX", "60000"]).to_string();
    assert_eq!(conn.int(&["LOCK.RELEASE", "warm", &token]), 1);
}
