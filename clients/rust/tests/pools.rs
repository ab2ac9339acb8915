//! Locks over applications' pools and cluster clients. Each call goes through them.

#![cfg(all(feature = "blocking", feature = "tokio"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![allow(clippy::arithmetic_side_effects)]

mod support;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redis::Cmd;
use redis::cluster::ClusterClient;
use serverlock::{Error, Kind, Locks, Options, Servers, aio};
use support::{Server, until};

const LEASE: Duration = Duration::from_secs(30);

fn with_r2d2(server: &Server, options: Options) -> (Locks, r2d2::Pool<redis::Client>) {
    let pool = r2d2::Pool::builder().max_size(2).build(server.client()).unwrap();
    let own = pool.clone();
    let call = move |cmd: &Cmd| cmd.query(&mut own.get().map_err(io::Error::other)?);
    (Locks::with_calls(server.client(), call, options), pool)
}

async fn with_bb8(server: &Server, options: Options) -> aio::Locks {
    let pool = bb8::Pool::builder().max_size(2).build(server.client()).await.unwrap();
    let call = move |cmd: Cmd| {
        let pool = pool.clone();
        async move { cmd.query_async(&mut *pool.get().await.map_err(io::Error::other)?).await }
    };
    aio::Locks::with_calls(server.client(), call, options)
}

/// How many connections there are besides the pool's and the test's own.
fn others(server: &Server, pool: &r2d2::Pool<redis::Client>) -> usize {
    server.connections() - usize::try_from(pool.state().connections).unwrap()
}

#[test]
fn threads_share_an_r2d2_pool() {
    let server = Server::start();
    let (locks, pool) = with_r2d2(&server, Options::new());
    let held = locks.lock("report", LEASE).acquire().unwrap();
    assert_eq!(locks.lock("report", LEASE).acquire().unwrap_err().kind(), Kind::Refused);
    held.extend(LEASE).unwrap();
    held.verify().unwrap();
    held.fenced::<()>(redis::cmd("SET").arg("done").arg(1)).unwrap();
    assert_eq!(others(&server, &pool), 0);
    thread::scope(|scope| {
        for number in 1..=3 {
            let report = locks.lock("report", LEASE).wait(LEASE);
            scope.spawn(move || report.run(|_| Ok::<_, Error>(())).unwrap());
            until("it waits", || server.info("report", "waiters") == number.to_string());
        }
        held.release().unwrap();
    });
    assert!(server.is_free("report"));
    // If the server cannot notify, each wait blocks a connection.
    let most = if server.call::<String>(&["INFO", "server"]).contains("redis_version:6.") { 3 } else { 2 };
    assert!(others(&server, &pool) <= most, "{}", others(&server, &pool));
    let before = server.calls("lock.extend");
    let renewed = locks.lock("short", Duration::from_secs(9)).acquire().unwrap();
    until("it is renewed", || server.calls("lock.extend") > before);
    renewed.release().unwrap();
}

/// The connection is the pool's, so it cannot be closed: its late reply is awaited, and the lock is then released.
#[test]
fn a_call_over_a_pool_ends_in_time_and_leaves_nothing() {
    let server = Server::start();
    let (locks, pool) = with_r2d2(&server, Options::new().timeout(Duration::from_millis(200)));
    locks.lock("report", LEASE).acquire().unwrap().release().unwrap();
    server.call::<()>(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    let error = locks.lock("report", LEASE).acquire().unwrap_err(); // otherwise it would be granted after the pause
    assert_eq!(error.kind(), Kind::NoServer, "{error}");
    server.call::<()>(&["CLIENT", "UNPAUSE"]);
    until("it is free", || server.is_free("report"));
    until("its connections are back", || pool.state().idle_connections == pool.state().connections);
    assert_eq!(redis::cmd("PING").query::<String>(&mut pool.get().unwrap()).unwrap(), "PONG");
}

#[test]
fn a_pool_without_connections_is_reported_as_no_server() {
    let gone = redis::Client::open("redis://127.0.0.1:1").unwrap();
    let pool = r2d2::Pool::builder().connection_timeout(Duration::from_millis(50)).build_unchecked(gone.clone());
    let call = move |cmd: &Cmd| cmd.query(&mut pool.get().map_err(io::Error::other)?);
    let locks = Locks::with_calls(gone, call, Options::new());
    assert_eq!(locks.lock("report", LEASE).acquire().unwrap_err().kind(), Kind::NoServer);
}

#[test]
fn a_closure_that_panics_is_reported_as_no_server() {
    let server = Server::start();
    let locks = Locks::with_calls(server.client(), |_| panic!("the closure panics"), Options::new());
    assert_eq!(locks.lock("report", LEASE).acquire().unwrap_err().kind(), Kind::NoServer);
}

#[tokio::test]
async fn tasks_share_a_bb8_pool() {
    let server = Arc::new(Server::start());
    let locks = with_bb8(&server, Options::new()).await;
    let held = locks.lock("report", LEASE).acquire().await.unwrap();
    assert_eq!(locks.lock("report", LEASE).acquire().await.unwrap_err().kind(), Kind::Refused);
    held.verify().await.unwrap();
    let mut waiting = Vec::new();
    for number in 1..=3 {
        let report = locks.lock("report", LEASE).wait(LEASE);
        waiting.push(tokio::spawn(async move { report.run(async |_| Ok::<_, Error>(())).await }));
        let at = Arc::clone(&server);
        let waits = move || until("it waits", || at.info("report", "waiters") == number.to_string());
        tokio::task::spawn_blocking(waits).await.unwrap();
    }
    held.release().await.unwrap();
    for one in waiting {
        one.await.unwrap().unwrap();
    }
    assert!(server.is_free("report"));
}

/// A key on each master.
fn keys_of_all(nodes: &[Server; 3]) -> Vec<String> {
    let mut keys = BTreeMap::new();
    for number in 0.. {
        let key = format!("key{number}");
        let slot: i64 = nodes[0].call(&["CLUSTER", "KEYSLOT", &key]);
        keys.entry(slot * 3 / 16384).or_insert(key);
        if keys.len() == 3 {
            break;
        }
    }
    keys.into_values().collect()
}

#[test]
fn threads_share_a_cluster_client() {
    let nodes = Server::start_cluster();
    let client = ClusterClient::new([("127.0.0.1", nodes[0].port)]).unwrap();
    let servers = Servers::cluster(nodes.iter().map(Server::client));
    let connection = Mutex::new(client.get_connection().unwrap());
    let one = move |cmd: &Cmd| cmd.query(&mut *connection.lock().unwrap());
    let pool = r2d2::Pool::builder().max_size(2).build(client).unwrap();
    let pooled = move |cmd: &Cmd| cmd.query(&mut pool.get().map_err(io::Error::other)?);
    for locks in [
        Locks::with_calls(servers.clone(), one, Options::new()),
        Locks::with_calls(servers.clone(), pooled, Options::new()),
    ] {
        for key in keys_of_all(&nodes) {
            let held = locks.lock(&key, LEASE).acquire().unwrap();
            held.extend(LEASE).unwrap();
            held.verify().unwrap();
            let report = locks.lock(&key, LEASE).wait(LEASE);
            let waiting: Vec<_> = (0..2)
                .map(|_| {
                    let report = report.clone();
                    thread::spawn(move || report.run(|_| Ok::<_, Error>(())))
                })
                .collect();
            held.release().unwrap();
            for one in waiting {
                one.join().unwrap().unwrap();
            }
            let pair = [format!("{{{key}}}a"), format!("{{{key}}}b")];
            locks.all_of(pair, LEASE).acquire().unwrap().release().unwrap();
        }
    }
}

#[tokio::test]
async fn tasks_share_a_cluster_client() {
    let nodes = Server::start_cluster();
    let client = ClusterClient::new([("127.0.0.1", nodes[0].port)]).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let servers = Servers::cluster(nodes.iter().map(Server::client));
    let call = move |cmd: Cmd| {
        let mut connection = connection.clone();
        async move { cmd.query_async(&mut connection).await }
    };
    let locks = aio::Locks::with_calls(servers, call, Options::new());
    for key in keys_of_all(&nodes) {
        let held = locks.lock(&key, LEASE).acquire().await.unwrap();
        held.extend(LEASE).await.unwrap();
        held.verify().await.unwrap();
        let report = locks.lock(&key, LEASE).wait(LEASE);
        let waiting = tokio::spawn(async move { report.run(async |_| Ok::<_, Error>(())).await });
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap();
        let pair = [format!("{{{key}}}a"), format!("{{{key}}}b")];
        locks.all_of(pair, LEASE).acquire().await.unwrap().release().await.unwrap();
    }
}
