//! Waiting without a connection, step by step as in part nine of the fixture: replies and messages, byte for byte.

use super::connect;
use super::fixture::{Case, Fixture};
use crate::inspect::address;
use crate::notify::can_publish;
use testkit::{show, Conn, Server};

/// The subscriber of the scene.
fn subscriber(server: &Server, resp3: bool) -> Conn {
    let mut conn = connect(server, resp3);
    for subscribe in ["SUBSCRIBE", "SSUBSCRIBE"] {
        conn.execute(&[subscribe, "c"]);
    }
    conn
}

#[test]
fn notify_replies_and_messages_match_the_fixture() {
    let fixture = Fixture::load();
    for resp3 in [false, true] {
        let server = Server::with().module_args(&["claim-ms", "60000"]).start();
        let mut conn = connect(&server, resp3);
        if !can_publish(&mut conn) {
            return;
        }
        let mut messages = subscriber(&server, resp3);
        let token = conn.int(&["LOCK.ACQUIRE", "key", "EX", "100"]).to_string();
        let mut case = Case::start(&mut conn, "key", &token, resp3);
        let holder = conn.int(&["CLIENT", "ID"]).to_string();
        case.scene.insert("holder_addr", address(&mut conn, &holder));
        case.scene.insert("holder", holder);
        for step in &fixture.notify {
            let value = conn.text(&["GET", "key"]);
            case.scene.insert("until", value[..17].into());
            case.scene.insert("granted", value[17..33].into());
            let args = case.args(&step.command);
            let what = format!("{args:?}, RESP3: {resp3}");
            let reply = conn.raw(&args);
            case.assert_reply(&fixture.inspection_reply(step), &reply, &what);
            match &step.message {
                Some(message) => {
                    let sent = messages.raw_reply();
                    case.assert_reply(message, &sent, &format!("the message after {what}"));
                }
                None => assert!(!messages.has_reply(), "{what}: {}", show(&messages.raw_reply())),
            }
        }
        assert_eq!(conn.int(&["EXISTS", "key"]), 0);
    }
}
