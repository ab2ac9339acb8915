//! The listeners of a server: replicas, the backlog and the AOF. While there are none, a command counts what it writes
//! and builds no effects for them. A LOCK.* command never reaches them; one that arrives all the same, from a master or
//! an AOF, is refused and logged. `tests/torture/listeners` lets them come and go under load.

mod refused;
mod unheard;

use crate::support::{skipped, until, Conn};

/// How many writes nobody was told of.
pub fn unheard(conn: &mut Conn) -> u64 {
    conn.info("lock", "lock_unreplicated_writes").expect("a field of INFO").parse().unwrap()
}

/// Writes until the module has found that nobody listens; false on a server of which it is not known who can.
pub fn until_nobody_listens(conn: &mut Conn) -> bool {
    if conn.is_before_7() {
        skipped("writes that nobody is told of", "before 7.0 every write is replicated");
        return false;
    }
    let before = unheard(conn);
    until("the module finds that nobody listens", || {
        write(conn);
        (unheard(conn) > before).then_some(())
    });
    true
}

/// Takes a lock and gives it back.
pub fn write(conn: &mut Conn) {
    let token = conn.int(&["LOCK.ACQUIRE", "warm", "PX", "60000"]).to_string();
    assert_eq!(conn.int(&["LOCK.RELEASE", "warm", &token]), 1);
}
