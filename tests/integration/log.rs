//! The lines that the module writes to the server's log: each has the module's name; they say when a grace begins and
//! ends, and what the grace refused.

use testkit::{until, Server};

/// The module's lines, without its name.
fn lines(server: &Server) -> Vec<String> {
    server.log().lines().filter_map(|line| line.split_once("<lock> ")).map(|(_, text)| text.to_string()).collect()
}

fn count(server: &Server, opening: &str) -> usize {
    lines(server).iter().filter(|line| line.starts_with(opening)).count()
}

#[test]
fn every_line_has_the_modules_name() {
    let server =
        Server::with().args(&["--maxmemory-policy", "allkeys-lru"]).module_args(&["failover-grace-ms", "100"]).start();
    let mut conn = server.conn();
    // The lines come from loading the module, from a server event and from the cron.
    assert_eq!(count(&server, "lock "), 1, "{}", server.log());
    assert_eq!(count(&server, "maxmemory-policy evicts"), 1, "{}", server.log());
    until("the cron has found what is wrong with the grace", || {
        (lines(&server).iter().any(|line| line.contains("failover-grace-ms"))).then_some(())
    });
    assert!(!server.log().contains("<module>"), "{}", server.log());
    // Unloaded and reloaded, the module has its name again.
    conn.ok(&["MODULE", "UNLOAD", "lock"]);
    let file = testkit::module().to_str().unwrap();
    conn.ok(&["MODULE", "LOAD", file]);
    assert_eq!(count(&server, "lock "), 2, "{}", server.log());
    assert!(!server.log().contains("<module>"), "{}", server.log());
}

const BEGUN: &str = "a grace has begun: no lock is granted for the next ";
const ENDED: &str = "the grace has ended: locks are granted";

#[test]
fn a_grace_is_logged_when_it_begins_and_ends() {
    let master = Server::start();
    let server = Server::with().module_args(&["failover-grace-ms", "1500"]).start();
    until("the grace of the start has ended", || (count(&server, ENDED) == 1).then_some(()));
    assert_eq!(count(&server, BEGUN), 1);
    // A replica grants nothing anyway.
    server.replicate(&master);
    assert_eq!((count(&server, BEGUN), count(&server, ENDED)), (1, 1), "{}", server.log_tail(20));
    server.conn().ok(&["REPLICAOF", "NO", "ONE"]);
    until("the grace of the promotion has begun", || (count(&server, BEGUN) == 2).then_some(()));
    let line = lines(&server).into_iter().rfind(|line| line.starts_with(BEGUN)).unwrap();
    let left: u64 = line[BEGUN.len()..].split(' ').next().unwrap().parse().unwrap();
    assert!((1..=1500).contains(&left), "{line}");
    let mut conn = server.conn();
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "PX", "1"]).error().starts_with("GRACE "));
    until("it has ended too", || (count(&server, ENDED) == 2).then_some(()));
    // Without a grace there is nothing to log.
    assert_eq!((count(&master, BEGUN), count(&master, ENDED)), (0, 0), "{}", master.log());
}

/// A server in a grace that covers leases of up to a second.
fn in_grace() -> Server {
    let args = ["failover-grace-ms", "4500", "margin-ms", "500"];
    Server::with().args(&["--min-replicas-max-lag", "1"]).module_args(&args).start()
}

#[test]
fn the_end_of_a_grace_says_what_it_refused() {
    let server = in_grace();
    let mut conn = server.conn();
    // Commands that would have been granted the lock, some for several keys or an expired one.
    conn.ok(&["SET", "expired", "1763710031.4829131763710000482913"]);
    for call in [
        &["LOCK.ACQUIRE", "k", "PX", "1"][..],
        &["LOCK.MACQUIRE", "2", "k", "l", "PX", "1"],
        &["LOCK.RECOVER", "expired", "PX", "1"],
    ] {
        assert!(conn.execute(call).error().starts_with("GRACE this server"), "{call:?}");
    }
    // The grace does not refuse these: the lock is held, or the lease is always too long.
    conn.ok(&["SET", "held", "somebody's"]);
    assert!(conn.execute(&["LOCK.ACQUIRE", "held", "PX", "1"]).is_nil());
    assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60"]).error().starts_with("GRACE lease"));
    let _waits = server.waiter(&["LOCK.ACQUIRE", "held", "PX", "1", "WAIT", "60000"]);
    assert_eq!(conn.info("lock", "lock_grace_refusals").as_deref(), Some("3"));
    until("the grace has ended", || (count(&server, ENDED) == 1).then_some(()));
    let line = lines(&server).into_iter().rfind(|line| line.starts_with(ENDED)).unwrap();
    assert_eq!(line[ENDED.len()..], *". Calls refused with GRACE: 3, attempts that wait: 1");
}

#[test]
fn a_grace_that_a_demotion_ends_is_logged() {
    let server = in_grace();
    until("the grace has begun", || (count(&server, BEGUN) == 1).then_some(()));
    server.conn().ok(&["REPLICAOF", "127.0.0.1", "1"]);
    let demoted = "the grace has ended: this server is a replica now. Calls refused with GRACE: 0";
    until("its end is logged", || (count(&server, demoted) == 1).then_some(()));
    assert_eq!(count(&server, ENDED), 0);
}
