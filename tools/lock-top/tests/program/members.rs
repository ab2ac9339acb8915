//! Several servers in one view: those on the command line, a cluster's masters, the servers of a Sentinel group.

use crate::screen::Screen;
use crate::{address, complaint, json, once};
use testkit::cluster::Cluster;
use testkit::sentinel::{Group, Plan};
use testkit::{until, Conn, Server};

#[test]
fn locks_of_several_servers_are_one_list() {
    let servers = [Server::start(), Server::start()];
    let held = |server: &Server, key: &str, waiters: usize| {
        server.conn().int(&["LOCK.ACQUIRE", key, "EX", "60"]);
        let wait = ["LOCK.ACQUIRE", key, "EX", "60", "WAIT", "60000"];
        (0..waiters).map(|_| server.waiter(&wait)).collect::<Vec<_>>()
    };
    let _waiting = [held(&servers[0], "a", 1), held(&servers[1], "b", 2)];
    let args = [address(&servers[0]), address(&servers[1])];
    let document = json(&[&args[0], &args[1]]);
    let keys: Vec<_> =
        document["locks"].as_array().unwrap().iter().map(|lock| (&lock["key"], &lock["server"])).collect();
    assert_eq!(keys, [(&"b".into(), &args[1].clone().into()), (&"a".into(), &args[0].clone().into())]);
    assert!(once(&[&args[0], &args[1]]).contains("SERVER"));
    // A server with two names is shown once.
    let port = servers[0].port();
    let document = json(&[&args[0], &format!("localhost:{port}")]);
    assert_eq!(document["servers"].as_array().unwrap().len(), 1);
}

#[test]
fn one_server_under_two_names_uses_one_connection() {
    let (server, mut conn) = Server::connected();
    let clients = |conn: &mut Conn| conn.info("clients", "connected_clients").unwrap().parse::<u64>().unwrap();
    // Connections from startup may still be closing.
    until("this is the only client", || (clients(&mut conn) == 1).then_some(()));
    let port = server.port();
    let Some(screen) = Screen::start("names", 24, &[&address(&server), &format!("localhost:{port}")]) else { return };
    screen.until_shows(&["lock-top  1 server "]);
    until("the second connection ends", || (clients(&mut conn) == 2).then_some(()));
}

#[test]
fn any_node_of_a_cluster_leads_to_all_masters() {
    let cluster = Cluster::start("", "");
    cluster.wait_until_healthy();
    let keys = cluster.a_key_for_each_master("lock");
    let mut waiting = Vec::new();
    for key in &keys {
        let node = cluster.master_of(key);
        node.conn().int(&["LOCK.ACQUIRE", key, "EX", "60"]);
        let mut waiter = node.conn();
        waiter.send(&["LOCK.ACQUIRE", key, "EX", "60", "WAIT", "60000"]);
        node.conn().until_waiters(key, 1);
        waiting.push(waiter);
    }
    let one = format!("127.0.0.1:{}", cluster.master_of(&keys[0]).port);
    let document = json(&[&one]);
    assert_eq!(document["servers"].as_array().unwrap().len(), 3, "{document:#}");
    let mut found: Vec<&str> =
        document["locks"].as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap()).collect();
    let mut expected: Vec<&str> = keys.iter().map(String::as_str).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(json(&["--only", &one])["servers"].as_array().unwrap().len(), 1);
    if let Some(screen) = Screen::start("cluster", 40, &[&one]) {
        screen.until_shows(&["lock-top  3 servers ", &keys[0], &keys[1], &keys[2]]);
    }
}

#[test]
fn sentinels_lead_to_the_master_and_its_replicas() {
    let group = Group::start(Plan::UNSAFE.on_request());
    group.wait_until_complete();
    let sentinel = group.sentinel_port(0);
    let at = format!("127.0.0.1:{sentinel}");
    let document = until("all three servers are known", || {
        let document = json(&["--sentinel", "locks", &at]);
        (document["servers"].as_array()?.len() == 3).then_some(document)
    });
    let roles = |role: &str| document["servers"].as_array().unwrap().iter().filter(|it| it["role"] == role).count();
    assert_eq!((roles("master"), roles("slave")), (1, 2), "{document:#}");
    if let Some(screen) = Screen::start("group", 40, &["--sentinel", "locks", &at]) {
        screen.until_shows(&["lock-top  3 servers ", "master", "replica"]);
    }
    // A Sentinel that is down is skipped.
    assert!(json(&["--sentinel", "locks", "127.0.0.1:1", &at])["error"].is_null());

    let said = complaint(&["--sentinel", "other", &at]);
    assert!(said.contains("it knows no group named other"), "{said}");
    let said = complaint(&[&at]);
    assert!(said.contains("this is a Sentinel; --sentinel NAME shows its group"), "{said}");
    let master = document["servers"].as_array().unwrap().iter().find(|it| it["role"] == "master").unwrap();
    let said = complaint(&["--sentinel", "locks", master["address"].as_str().unwrap()]);
    assert!(said.contains("this is not a Sentinel"), "{said}");
}
