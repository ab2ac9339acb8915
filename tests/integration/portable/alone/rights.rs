//! The permissions that docs/PORTABLE.md names: each of them is needed, and no others.

use super::{started, Way};
use testkit::{project_file, skipped, Conn, Reply, Server};

/// A user's permissions for this way, as documented on the page.
fn documented(way: &Way) -> Vec<String> {
    let opening = match way {
        Way::Function => "ACL SETUSER worker",
        Way::Script(_) => "ACL SETUSER scripted",
    };
    let page = project_file("docs/PORTABLE.md");
    let line = page.lines().find(|line| line.starts_with(opening)).expect("the rule is on the page").to_string();
    line.split(' ').map(str::to_string).collect()
}

fn signed_in(server: &Server, name: &str) -> Conn {
    let mut conn = server.conn();
    conn.ok(&["AUTH", name, "secret"]);
    conn
}

/// All five commands, on its own lock, an expired lock, and a classic client's lock. Returns the errors.
fn errors(conn: &mut Conn, way: &Way) -> Vec<String> {
    let mut errors = Vec::new();
    let mut send = |command: &str| {
        let reply = way.execute(conn, command);
        if let Reply::Error(text) = &reply {
            errors.push(text.clone());
        }
        reply
    };
    let token = match send("LOCK.ACQUIRE lock:free PX 60000") {
        Reply::Int(token) => token,
        _ => 1_763_710_000_482_913,
    };
    send("LOCK.RECOVER lock:over PX 60000");
    send("LOCK.ACQUIRE lock:classic PX 60000");
    send(&format!("LOCK.EXTEND lock:free {token} PX 60000"));
    send(&format!("LOCK.CHECK lock:free {token}"));
    send(&format!("LOCK.RELEASE lock:free {token}"));
    send("LOCK.RELEASE lock:held 1763710000482913");
    errors
}

fn prepare(conn: &mut Conn) {
    conn.ok(&["FLUSHALL"]);
    conn.ok(&["SET", "lock:over", "1763710031.4829131763710000482913"]);
    conn.ok(&["SET", "lock:held", "9763710031.4829131763710000482913"]);
    conn.ok(&["SET", "lock:classic", "1763710031"]);
}

#[test]
fn the_documented_rights_are_minimal() {
    let (server, mut conn, ways) = started(&[]);
    for way in ways {
        let rule = documented(&way);
        conn.ok(&rule);
        prepare(&mut conn);
        let mut user = signed_in(&server, &rule[2]);
        let errors_of_all = errors(&mut user, &way);
        assert!(errors_of_all.is_empty(), "{errors_of_all:?}");
        assert_eq!(conn.execute(&["EXISTS", "lock:free", "lock:held"]), Reply::Int(0));
        let needed: Vec<_> = rule.iter().filter(|word| word.starts_with('+') && *word != "+pexpireat").collect();
        assert_eq!(needed.len(), 6, "{rule:?}");
        for right in needed {
            conn.ok(&["ACL", "SETUSER", &rule[2], &right.replace('+', "-")]);
            prepare(&mut conn);
            let refused = errors(&mut user, &way);
            assert!(!refused.is_empty(), "{way:?} works without {right}");
            assert!(refused.iter().all(|text| text.starts_with("NOPERM ")), "{way:?} without {right}: {refused:?}");
            conn.ok(&["ACL", "SETUSER", &rule[2], right]);
        }
        let reply = way.execute(&mut user, "LOCK.ACQUIRE other PX 1000");
        assert!(reply.error().starts_with("NOPERM "), "{way:?}: {reply:?}");
        assert_eq!(conn.int(&["EXISTS", "other"]), 0);
    }
}

#[test]
fn a_reader_of_a_key_can_check_it() {
    let (server, mut conn, ways) = started(&[]);
    if conn.is_before_7() {
        skipped("permissions to read a key", "they need 7.0");
        return;
    }
    prepare(&mut conn);
    conn.ok(&["ACL", "SETUSER", "reader", "on", ">secret", "%R~lock:*", "+fcall_ro", "+evalsha_ro", "+time", "+get"]);
    let mut reader = signed_in(&server, "reader");
    for way in ways {
        let mut command = way.usual(&["LOCK.CHECK", "lock:held", "1763710000482913"]);
        command[0].push_str("_RO");
        assert!(reader.int(&command) > 0, "{way:?}");
    }
}
