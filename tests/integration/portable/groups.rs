//! In a cluster and under Sentinel, a call goes to its key's node, and a new master knows what was replicated.

use super::client::{load, Way};
use crate::cluster;
use testkit::sentinel::{Group, Plan};
use testkit::{skipped, Conn, Reply};

/// The script, on a server that has the module: unlike a function, the script does not call the module.
fn script(conn: &mut Conn) -> Way {
    load(conn).swap_remove(0)
}

#[test]
fn a_cluster_command_follows_its_key_through_a_failover() {
    let cluster = cluster::in_memory();
    let key = "portable";
    let (mut right, mut wrong) = (cluster.master_of(key).conn(), cluster.other_master(key).conn());
    let acquire = format!("LOCK.ACQUIRE {key} PX 600000");
    load(&mut wrong);
    for way in load(&mut right) {
        assert!(way.execute(&mut wrong, &acquire).error().starts_with("MOVED "), "{way:?}");
        let token = way.execute(&mut right, &acquire).int();
        assert!(way.execute(&mut right, &format!("LOCK.CHECK {key} {token}")).int() > 500_000);
        assert_eq!(way.execute(&mut right, &format!("LOCK.RELEASE {key} {token}")), Reply::Int(1));
    }
    let token = script(&mut right).execute(&mut right, &acquire).int();
    assert!(right.int(&["WAIT", "1", "20000"]) >= 1);
    let (_, new) = cluster.fail_over(key, &[]);
    let mut conn = new.conn();
    let way = script(&mut conn);
    assert!(way.execute(&mut conn, &acquire).is_nil(), "it is held");
    assert_eq!(way.execute(&mut conn, &format!("LOCK.RELEASE {key} {token}")), Reply::Int(1));
    cluster.wait_until_healthy();
}

#[test]
fn in_a_cluster_only_a_sharded_channel_shows_that_a_process_is_gone() {
    let cluster = cluster::in_memory();
    let key = "{queued}";
    let mut conn = cluster.master_of(key).conn();
    let way = script(&mut conn);
    let ask = |id: u32, notify: &str| format!("LOCK.ACQUIRE {key} PX 60000 WAIT 60000 ID {id} {notify}");
    let reply = conn.execute(&way.queued(&ask(1, "SNOTIFY elsewhere")));
    let token = reply.int();
    let reply = conn.execute(&way.queued(&ask(2, "SNOTIFY elsewhere")));
    let (error, from) = if conn.is_before_7() {
        skipped("a sharded channel", "this server has none");
        ("ERR SNOTIFY needs Redis 7.0 or later, or any version of Valkey", 1)
    } else {
        ("ERR channel does not hash to the slot of the key", 0)
    };
    assert_eq!(reply.error(), error);
    for (id, notify) in &[(2, "SNOTIFY {queued}:gone"), (3, "NOTIFY gone"), (4, "NOTIFY gone")][from..] {
        assert_eq!(conn.execute(&way.queued(&ask(*id, notify))).list()[0].text(), "WAITING");
    }
    assert_eq!(conn.execute(&way.queued(&format!("LOCK.RELEASE {key} {token}"))), Reply::Int(1));
    let queue = conn.execute(&["ZRANGE", "{queued}:queue", "0", "-1"]);
    let ids: Vec<String> = queue.list().iter().map(|member| member.text()[18..19].to_string()).collect();
    assert_eq!(ids, ["3", "4"], "a subscriber of 3 could be on any node");
    assert!(conn.int(&way.queued(&ask(3, "NOTIFY gone"))) > token);
    conn.execute(&["DEL", key, "{queued}:queue"]);
}

#[test]
fn a_sentinel_failover_keeps_holders_and_functions() {
    let group = Group::start(Plan::UNSAFE.on_request());
    let old = testkit::until("all agree on a master", || group.master());
    group.wait_until_complete();
    let mut conn = group.conn(old);
    let ways = load(&mut conn);
    let token = ways[0].execute(&mut conn, "LOCK.ACQUIRE portable PX 600000 OWNER alice").int();
    assert_eq!(conn.int(&["WAIT", "2", "20000"]), 2);
    group.ask_for_failover();
    let mut conn = group.conn(group.until_replaced(old));
    if let Some(function) = ways.iter().find(|way| matches!(way, Way::Function)) {
        assert!(function.execute(&mut conn, "LOCK.ACQUIRE portable PX 1000").is_nil(), "nobody loaded it here");
    }
    let way = script(&mut conn);
    assert!(way.execute(&mut conn, "LOCK.ACQUIRE portable PX 1000").is_nil(), "it is held");
    assert!(way.execute(&mut conn, &format!("LOCK.CHECK portable {token}")).int() > 500_000);
    assert_eq!(way.execute(&mut conn, &format!("LOCK.RELEASE portable {token}")), Reply::Int(1));
}
