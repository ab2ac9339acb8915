//! The module is removed while locks are held, and returns: the keys stay, classic clients and the portable lock
//! continue with them, and holders release as if nothing had happened.

use super::ModuleFile;
use testkit::{skipped, until, Server};

#[test]
fn held_locks_survive_a_start_without_the_module() {
    let file = ModuleFile::new();
    if Server::start().conn().is_before_7() {
        skipped("the functions of lock.lua after MODULE UNLOAD", "functions need 7.0");
        return;
    }
    let server = Server::with().args(&["--enable-module-command", "yes"]).start();
    let mut conn = server.conn();
    let token = conn.int(&["LOCK.ACQUIRE", "kept", "PX", "60000", "OWNER", "alice"]).to_string();
    let over = conn.int(&["LOCK.ACQUIRE", "over", "PX", "1"]);
    let shared = conn.int(&["LOCK.ACQUIRE", "shared", "PX", "60000", "SHARED"]).to_string();
    let value = conn.text(&["GET", "kept"]);
    until("it has expired", || (conn.state("over") == "expired").then_some(()));
    conn.ok(&["MODULE", "UNLOAD", "lock"]);
    // The portable lock reads and extends the module's locks, and takes over expired ones.
    let library = std::fs::read_to_string("portable/lock.lua").unwrap();
    conn.text(&["FUNCTION", "LOAD", &library]);
    assert!(conn.execute(&["FCALL", "lock_acquire", "1", "kept", "1000", "60000", "PX", "1000"]).is_nil());
    assert_eq!(conn.int(&["FCALL", "lock_extend", "1", "kept", "1000", "60000", &token, "PX", "60000"]), 1);
    assert!(conn.int(&["FCALL", "lock_acquire", "1", "over", "1000", "60000", "PX", "60000"]) > over);
    assert_ne!(conn.text(&["GET", "kept"]), value);
    conn.ok(&["MODULE", "LOAD", file.path().to_str().unwrap()]);
    assert_eq!(conn.state("kept"), "held");
    assert_eq!(conn.lock("kept", "owner").text(), "alice");
    assert_eq!(conn.int(&["LOCK.RELEASE", "kept", &token]), 1);
    assert_eq!(conn.int(&["LOCK.RELEASE", "shared", &shared]), 1);
    assert_eq!(conn.state("over"), "held");
}
