//! No server at the address, or a program that is not one.

use std::net::{TcpListener, TcpStream};
use std::thread;

use super::driver::{in_each, in_each_and_protocol, Driver, Event, Hold, NOBODY};
use crate::support::{Conn, Server};

/// What it answers to LOCK.*.
const JUNK: &[&str] = &[
    "+OK\r\n",
    ":-5\r\n",
    ":0\r\n",
    "$5\r\nhello\r\n",
    "*0\r\n",
    "*2\r\n:1763710000482913\r\n:2\r\n",
    "#t\r\n",
    ",1763710000482913.5\r\n",
    "%1\r\n+token\r\n:1763710000482913\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
];

/// A server on a port of its own that answers junk for as long as the test runs.
fn junk_server(junk: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(client, junk));
        }
    });
    port
}

/// Answers commands until the client goes.
fn answer(client: TcpStream, junk: &str) -> Option<()> {
    let mut conn = Conn::over(client).ok()?;
    loop {
        let reply = match &*conn.try_read().ok()?.list().first()?.text() {
            name if name.starts_with("LOCK.") => junk,
            "HELLO" => "%1\r\n+proto\r\n:3\r\n",
            _ => "+OK\r\n",
        };
        conn.try_send_bytes(reply.as_bytes()).ok()?;
    }
}

#[test]
fn a_server_that_answers_junk_grants_no_lock() {
    in_each_and_protocol(|language, protocol| {
        let mut driver = Driver::start(language);
        for junk in JUNK {
            let hold = Hold { protocol, timeout_ms: 500, ..Hold::of(language, junk_server(junk)) };
            driver.hold(&hold);
            match driver.next() {
                Event::Error { kind, name, text } => {
                    // Of another protocol or none, it is an error of the connection.
                    let is_of_resp2 = junk.starts_with(['+', ':', '$', '*']);
                    let is_reply = kind == "reply" || kind == "connection" && !is_of_resp2;
                    assert!(is_reply, "{junk:?}: {kind} {name}: {text}");
                    assert!(!text.is_empty(), "{junk:?}: {name} says nothing");
                }
                other => panic!("{junk:?}: {other:?}"),
            }
        }
    });
}

#[test]
fn a_server_that_is_away_is_an_error_of_the_connection() {
    in_each(|language| {
        let hold = Hold { timeout_ms: 500, wait_ms: 1_000, ..Hold::of(language, NOBODY) };
        let mut driver = Driver::asking(language, &hold);
        driver.error("connection");
    });
}

#[test]
fn a_server_without_the_module_is_named_as_such() {
    let server = Server::with().without_module().start();
    in_each(|language| {
        let hold = Hold::of(language, server.port());
        let mut driver = Driver::asking(language, &hold);
        assert!(driver.error("unsupported").contains("LOCK."));
        assert_eq!(server.conn().int(&["EXISTS", &hold.key]), 0);
        driver.ping(&hold);
    });
}
