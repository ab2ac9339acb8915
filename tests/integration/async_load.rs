//! `repl-diskless-load swapdb`: a replica keeps serving its data while it loads new data from its master. A module that
//! does not declare support for this disables it for the whole server.

use testkit::{until, Conn, Reply, Server};

/// Whether the server can serve while loading: 7.0 and later, but Valkey not with dual-channel replication.
fn can_serve_while_loading(conn: &mut Conn) -> bool {
    let setting = conn.execute(&["CONFIG", "GET", "dual-channel-replication-enabled"]);
    let is_dual_channel = setting.list().iter().any(|word| word.text() == "yes");
    let can = conn.info("persistence", "async_loading").is_some() && !is_dual_channel;
    if !can {
        eprintln!("skipped: this server does not serve while it loads from its master");
    }
    can
}

#[test]
fn a_loading_replica_shows_locks_and_grants_none() {
    let quick = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "16384"];
    let load = ["--repl-diskless-load", "swapdb", "--replica-read-only", "no"];
    let (master, replica) = (Server::with().args(&quick).start(), Server::with().args(&quick).args(&load).start());
    let (mut conn, mut read) = (master.conn(), replica.conn());
    if !can_serve_while_loading(&mut read) {
        return;
    }
    let acquire = |conn: &mut Conn, key: &str| conn.int(&["LOCK.ACQUIRE", key, "EX", "600", "OWNER", key]).to_string();
    let old = acquire(&mut conn, "old");
    let both = acquire(&mut conn, "both");
    for n in 0..3 {
        conn.int(&["LOCK.ACQUIRE", "several", "EX", "600", "SHARED", "ID", &n.to_string()]);
    }
    replica.replicate(&master);
    master.wait_offset(&replica);

    // The replica misses more than the backlog holds, so it needs a full resynchronization with the same history.
    let fill = "for n = 1, 2000 do redis.call('SET', 'f' .. n, string.rep('x', 100)) end return 1";
    conn.send(&["MULTI"]);
    conn.send(&["CLIENT", "KILL", "TYPE", "replica"]);
    conn.send(&["LOCK.RELEASE", "old", &old]);
    conn.send(&["LOCK.ACQUIRE", "new", "EX", "600", "OWNER", "new"]);
    conn.send(&["LOCK.ACQUIRE", "several", "EX", "600", "SHARED", "ID", "9"]);
    conn.send(&["EVAL", fill, "0"]);
    read.ok(&["CONFIG", "SET", "key-load-delay", "2000"]);
    read.ok(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    for _ in 0..6 {
        conn.read();
    }
    let Reply::List(done) = conn.execute(&["EXEC"]) else { panic!("a transaction") };
    assert_eq!((done.len(), &done[1]), (5, &Reply::Int(1)));
    let new = done[2].int().to_string();

    until("the replica loads and serves", || {
        (read.info("persistence", "async_loading").as_deref() == Some("1")).then_some(())
    });
    assert!(read.int(&["LOCK.CHECK", "old", &old]) > 0, "it still serves its old data");
    assert!(read.int(&["LOCK.CHECK", "both", &both]) > 0);
    assert_eq!(read.int(&["LOCK.CHECK", "new", &new]), 0, "not yet");
    assert_eq!(read.lock("old", "owner").text(), "old");
    assert_eq!(read.state("new"), "free");
    assert_eq!(read.state("several"), "held");
    assert!(matches!(read.execute(&["LOCK.SCAN", "0", "COUNT", "1000"]), Reply::List(_)));
    assert_eq!(read.execute(&["LOCK.TOP"]), Reply::List(vec![]));
    for command in [
        &["LOCK.ACQUIRE", "free", "EX", "5", "WAIT", "1000"][..],
        &["LOCK.EXTEND", "both", &both, "EX", "5"],
        &["LOCK.RELEASE", "both", &both],
    ] {
        assert!(read.execute(command).error().starts_with("READONLY "), "{command:?}");
    }
    assert_eq!(read.info("persistence", "async_loading").as_deref(), Some("1"), "it was loading the whole time");

    read.ok(&["CONFIG", "SET", "key-load-delay", "0"]);
    until("it has loaded", || (read.info("replication", "master_link_status").as_deref() == Some("up")).then_some(()));
    master.wait_offset(&replica);
    assert_eq!(read.int(&["LOCK.CHECK", "old", &old]), 0);
    assert!(read.int(&["LOCK.CHECK", "both", &both]) > 0 && read.int(&["LOCK.CHECK", "new", &new]) > 0);
    assert_eq!(conn.text(&["DEBUG", "DIGEST"]), read.text(&["DEBUG", "DIGEST"]));
    assert!(!replica.log().contains("not aware of async"), "{}", replica.log_tail(20));

    // Once promoted, it serves the loaded locks, and waiters for them.
    read.ok(&["REPLICAOF", "NO", "ONE"]);
    let mut waiter = replica.waiter(&["LOCK.ACQUIRE", "new", "EX", "5", "WAIT", "20000"]);
    assert_eq!(read.int(&["LOCK.RELEASE", "new", &new]), 1);
    waiter.read().int();
    assert!(!read.execute(&["LOCK.ACQUIRE", "several", "EX", "5", "SHARED"]).is_nil());
}
