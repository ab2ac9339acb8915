//! Servers that cannot be asked: one line each says why, and the others are shown.

use crate::{address, complaint, json, server_of};
use std::io::Write as _;
use std::net::TcpListener;
use testkit::{free_port, Server};

#[test]
fn a_server_that_is_not_there_is_reported() {
    let port = free_port();
    assert_eq!(complaint(&[&format!("127.0.0.1:{port}")]), format!("127.0.0.1:{port}: connection refused"));
    assert_eq!(complaint(&["/no/such/socket"]), "/no/such/socket: connection refused");
}

#[test]
fn a_server_without_the_module_is_reported() {
    let server = Server::with().without_module().start();
    let said = complaint(&[&address(&server)]);
    assert_eq!(said, format!("{}: the module is not loaded: LOCK.TOP is unknown", address(&server)));
}

#[test]
fn a_wrong_or_missing_password_is_reported() {
    let server = Server::start();
    server.conn().ok(&["CONFIG", "SET", "requirepass", "secret"]);
    let address = address(&server);
    assert_eq!(complaint(&[&address]), format!("{address}: the server asks for a password"));
    assert_eq!(complaint(&[&address, "--pass", "guess"]), format!("{address}: wrong user or password"));
    let url = format!("redis://nobody:guess@{address}");
    assert_eq!(complaint(&[&url]), format!("{address}: wrong user or password"));
    assert!(json(&[&address, "--pass", "secret"])["servers"][0]["error"].is_null());
    // The test's own connection needs no password.
    let mut conn = server.conn();
    conn.ok(&["AUTH", "secret"]);
    conn.ok(&["CONFIG", "SET", "requirepass", ""]);
}

#[test]
fn the_password_comes_from_a_file_or_the_environment() {
    let server = Server::start();
    server.conn().ok(&["CONFIG", "SET", "requirepass", "se cret"]);
    let file = server.dir().join("password");
    std::fs::write(&file, "se cret\nmore\n").unwrap();
    let address = address(&server);
    assert!(json(&[&address, "--pass-file", file.to_str().unwrap()])["servers"][0]["error"].is_null());
    let output = crate::program(&["--once", &address]).env("REDISCLI_AUTH", "se cret").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut conn = server.conn();
    conn.ok(&["AUTH", "se cret"]);
    conn.ok(&["CONFIG", "SET", "requirepass", ""]);
}

#[test]
fn something_that_is_not_a_server_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let said = complaint(&[&address]);
    assert!(said.starts_with(&format!("{address}: ")), "{said}");
}

#[test]
fn a_stalled_server_delays_no_other() {
    let (stopped, running) = (Server::start(), Server::start());
    stopped.signal("STOP");
    let document = json(&[&address(&stopped), &address(&running)]);
    stopped.signal("CONT");
    let error = server_of(&document, &address(&stopped))["error"].as_str().unwrap();
    assert_eq!(error, "no answer within 2 s");
    assert!(server_of(&document, &address(&running))["error"].is_null());
}

#[test]
fn a_unix_socket_is_a_server_too() {
    let dir = testkit::temp_dir();
    let socket = dir.join("s");
    let socket = socket.to_str().unwrap();
    let _server = Server::with().args(&["--unixsocket", socket]).start();
    assert!(json(&[socket])["servers"][0]["error"].is_null());
    assert!(json(&[&format!("unix://{socket}")])["servers"][0]["error"].is_null());
    std::fs::remove_dir_all(dir).unwrap();
}
