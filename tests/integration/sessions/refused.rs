//! SESSION needs its own connection: scripts and functions get an error, and nothing changes.

use super::Scene;
use crate::kinds::KINDS;
use testkit::Reply;

const TEXT: &str = "ERR SESSION needs a connection, not a script, a function or another module";

#[test]
fn a_script_gets_an_error_and_changes_nothing() {
    let mut scene = Scene::start();
    scene.locks.conn.ok(&["SET", "expired", "1700000000"]);
    for (command, key) in [("LOCK.ACQUIRE", "k"), ("LOCK.ACQUIRE", "expired"), ("LOCK.RECOVER", "expired")] {
        for call in ["call", "pcall"] {
            let script = format!("return redis.{call}('{command}', KEYS[1], 'PX', 30000, 'SESSION')");
            scene.forget();
            let reply = scene.locks.conn.execute(&["EVAL", &script, "1", key]);
            assert!(reply.error().contains("SESSION needs a connection"), "{reply:?}");
            let hash = scene.locks.conn.text(&["SCRIPT", "LOAD", &script]);
            let reply = scene.locks.conn.execute(&["EVALSHA", &hash, "1", key]);
            assert!(reply.error().contains("SESSION needs a connection"), "{reply:?}");
            if call == "pcall" {
                assert_eq!(reply.error(), TEXT);
            }
            assert!(scene.sent_for(key).is_empty());
        }
    }
    assert_eq!(scene.locks.conn.int(&["EXISTS", "k"]), 0);
    assert_eq!(scene.value("expired"), "1700000000");
}

#[test]
fn a_script_gets_an_error_for_every_kind_of_lock() {
    let mut scene = Scene::start();
    for kind in KINDS {
        let call = kind.acquire(&["PX", "30000", "SESSION"]);
        let script = "return redis.pcall(unpack(ARGV))";
        assert_eq!(scene.locks.conn.execute(&[&["EVAL", script, "0"], &call[..]].concat()).error(), TEXT, "{kind:?}");
        assert_eq!(kind.exist(&mut scene.locks.conn), 0, "{kind:?}");
    }
}

#[test]
fn only_a_script_in_a_transaction_gets_an_error() {
    let mut scene = Scene::start();
    let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], 'PX', 30000, 'SESSION')";
    scene.locks.conn.ok(&["MULTI"]);
    scene.locks.conn.execute(&["EVAL", script, "1", "k"]);
    scene.locks.conn.execute(&["LOCK.ACQUIRE", "k", "PX", "30000", "SESSION"]);
    let replies = scene.locks.conn.execute(&["EXEC"]);
    assert_eq!(replies.list()[0].error(), TEXT);
    let own = scene.locks.conn.int(&["CLIENT", "ID"]).to_string();
    assert!(replies.list()[1].int() > 0);
    assert_eq!(scene.session("k"), Some(own));
}

#[test]
fn a_function_gets_an_error_and_changes_nothing() {
    let mut scene = Scene::start();
    if scene.locks.conn.is_before_7() {
        return; // 6.2 has no functions.
    }
    let library = "#!lua name=locks\n\
        redis.register_function('take', function(keys) \
        return redis.pcall('LOCK.ACQUIRE', keys[1], 'PX', 30000, 'SESSION') end)";
    assert_eq!(scene.locks.conn.text(&["FUNCTION", "LOAD", library]), "locks");
    let reply = scene.locks.conn.execute(&["FCALL", "take", "1", "k"]);
    assert_eq!(reply, Reply::Error(TEXT.into()));
    assert_eq!(scene.locks.conn.int(&["EXISTS", "k"]), 0);
}

#[test]
fn a_script_uses_a_session_lock_without_taking_it_over() {
    let mut scene = Scene::start();
    let mut holder = scene.hold();
    let token = holder.token.to_string();
    let check = "return redis.call('LOCK.CHECK', KEYS[1], ARGV[1])";
    assert!(holder.conn.int(&["EVAL", check, "1", "k", &token]) > 0);
    let extend = "return redis.call('LOCK.EXTEND', KEYS[1], ARGV[1], 'PX', 60000)";
    assert_eq!(holder.conn.int(&["EVAL", extend, "1", "k", &token]), 1);
    assert_eq!(scene.session("k"), Some(holder.id));
    scene.forget();
    let from = scene.now_us();
    drop(holder.conn);
    scene.until_ended(holder.token, from);
}
