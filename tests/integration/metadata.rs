//! The server's metadata for each command: arity, flags, keys, ACL categories. `descriptions.rs` checks its
//! documentation and key specifications against docs/commands.
//!
//! If a server lacks one of these, that part is skipped with a message. `metadata/hints.rs` checks how the command-line
//! client uses the metadata.

mod hints;

use crate::descriptions::descriptions;
use serde_json::Value;
use testkit::{Conn, Reply, Server};

/// The expected metadata of a command.
struct Known {
    name: &'static str,
    arity: i64,
    /// Without `module`, which newer servers add; 6.2 does not know `blocking`.
    flags: &'static [&'static str],
    /// The flags of its single key.
    key: Option<&'static [&'static str]>,
    /// Its arguments.
    example: &'static [&'static str],
}

impl Known {
    /// Whether its first argument is the number of keys.
    fn is_counted(&self) -> bool {
        self.name.starts_with("lock.m")
    }

    /// The categories of the server's own commands with these flags, and `@lock`.
    fn categories(&self) -> Vec<String> {
        let has = |flag: &str| self.flags.contains(&flag);
        let all = [
            ("@write", has("write")),
            ("@read", has("readonly")),
            ("@fast", has("fast")),
            ("@slow", !has("fast")),
            ("@blocking", has("blocking")),
            ("@admin", has("admin")),
            ("@dangerous", has("admin")),
            ("@lock", true),
        ];
        sorted(all.iter().filter(|(_, has)| *has).map(|(name, _)| name))
    }
}

static KNOWN: [Known; 13] = [
    Known {
        name: "lock.acquire",
        arity: -4,
        flags: &["write", "denyoom", "blocking"],
        key: Some(&["RW", "access", "update"]),
        example: &["k", "EX", "5"],
    },
    Known {
        name: "lock.recover",
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        key: Some(&["RW", "access", "update"]),
        example: &["k", "PX", "5"],
    },
    Known {
        name: "lock.extend",
        arity: 5,
        flags: &["write", "fast"],
        key: Some(&["RW", "update"]),
        example: &["k", "1", "EX", "5"],
    },
    Known {
        name: "lock.release",
        arity: -3,
        flags: &["write", "fast"],
        key: Some(&["RW", "delete"]),
        example: &["k", "1"],
    },
    Known {
        name: "lock.check",
        arity: 3,
        flags: &["readonly", "fast"],
        key: Some(&["RO", "access"]),
        example: &["k", "1"],
    },
    Known { name: "lock.cancel", arity: -3, flags: &["write"], key: Some(&["RW", "delete"]), example: &["k", "1"] },
    Known { name: "lock.info", arity: -2, flags: &["readonly"], key: Some(&["RO", "access"]), example: &["k"] },
    Known {
        name: "lock.macquire",
        arity: -5,
        flags: &["write", "denyoom", "movablekeys", "blocking"],
        key: Some(&["RW", "access", "update"]),
        example: &["1", "k", "EX", "5"],
    },
    Known {
        name: "lock.mextend",
        arity: -6,
        flags: &["write", "movablekeys"],
        key: Some(&["RW", "update"]),
        example: &["1", "k", "1", "EX", "5"],
    },
    Known {
        name: "lock.mrelease",
        arity: -4,
        flags: &["write", "movablekeys"],
        key: Some(&["RW", "delete"]),
        example: &["1", "k", "1"],
    },
    Known { name: "lock.scan", arity: -2, flags: &["readonly"], key: None, example: &["0"] },
    Known { name: "lock.top", arity: -1, flags: &["readonly", "admin"], key: None, example: &[] },
    Known { name: "lock.help", arity: 1, flags: &["loading", "stale"], key: None, example: &[] },
];

/// The reply of COMMAND INFO for one command: six or seven parts before 7.0, ten from 7.0 on.
fn info(conn: &mut Conn, name: &str) -> Vec<Reply> {
    conn.execute(&["COMMAND", "INFO", name]).list()[0].list().to_vec()
}

/// Whether the server describes commands in full (7.0); if not, prints that `what` is skipped.
fn describes(conn: &mut Conn, what: &str) -> bool {
    let describes = info(conn, "lock.help").len() >= 10;
    if !describes {
        eprintln!("skipped: {what}: this server has no COMMAND DOCS");
    }
    describes
}

/// Whether the server lets a module add an ACL category (Redis 7.4, Valkey 8); if not, prints that `what` is skipped.
pub fn has_category(conn: &mut Conn, what: &str) -> bool {
    let has = matches!(conn.execute(&["ACL", "CAT", "lock"]), Reply::List(_));
    if !has {
        eprintln!("skipped: {what}: a module cannot add an ACL category to this server");
    }
    has
}

fn words(list: &Reply) -> Vec<String> {
    let mut words: Vec<_> = list.list().iter().map(Reply::text).collect();
    words.sort();
    words
}

fn sorted(words: impl IntoIterator<Item = impl ToString>) -> Vec<String> {
    let mut words: Vec<_> = words.into_iter().map(|word| word.to_string()).collect();
    words.sort();
    words
}

#[test]
fn command_info_has_arity_flags_and_key_position() {
    let (_server, mut conn) = Server::connected();
    let is_full = describes(&mut conn, "arity, and the flags module and blocking");
    for known in &KNOWN {
        let info = info(&mut conn, known.name);
        assert_eq!(info[0].text(), known.name);
        // Before 7.0 a module cannot declare the arity: the command itself checks it.
        assert_eq!(info[1].int(), if is_full { known.arity } else { -1 }, "arity of {}", known.name);
        let mut flags = known.flags.to_vec();
        if is_full {
            flags.push("module");
        } else {
            flags.retain(|flag| *flag != "blocking");
            // On such a server the module cannot check read permissions.
            flags.extend((known.name == "lock.scan").then_some("admin"));
        }
        assert_eq!(words(&info[2]), sorted(flags), "flags of {}", known.name);
        let place: Vec<_> = info[3..6].iter().map(Reply::int).collect();
        // Before 7.0 the server checks permissions on keys only where a first key is named. Later, a cluster sends a
        // command to the server of its first key.
        let expected = if known.is_counted() { [2, 2, 1] } else { [i64::from(known.key.is_some()); 3] };
        assert_eq!(place, expected, "key of {}", known.name);
    }
}

#[test]
fn getkeys_and_getkeysandflags_find_the_keys() {
    let (_server, mut conn) = Server::connected();
    let is_full = describes(&mut conn, "COMMAND GETKEYSANDFLAGS");
    for known in &KNOWN {
        let mut get = |what: &str| conn.execute(&[&["COMMAND", what, known.name], known.example].concat());
        let reply = get("GETKEYS");
        let Some(flags) = known.key else {
            assert!(reply.error().starts_with("ERR "), "{}: {reply:?}", known.name);
            continue;
        };
        assert_eq!(words(&reply), ["k"], "{}", known.name);
        if !is_full {
            continue;
        }
        let reply = get("GETKEYSANDFLAGS");
        let keys = reply.list();
        assert_eq!(keys.len(), 1, "{}", known.name);
        assert_eq!(keys[0].list()[0].text(), "k", "{}", known.name);
        assert_eq!(words(&keys[0].list()[1]), sorted(flags), "{}", known.name);
    }
}

#[test]
fn every_module_command_is_known_here() {
    let (_server, mut conn) = Server::connected();
    let all = conn.execute(&["COMMAND"]);
    let names = all.list().iter().map(|command| command.list()[0].text());
    let ours = sorted(names.filter(|name| name.starts_with("lock.")));
    assert_eq!(ours, sorted(KNOWN.iter().map(|known| known.name)));
}

/// The keywords among its arguments.
fn options(arguments: &Value) -> Vec<String> {
    let of = |argument: &Value| {
        let inner = options(&argument["arguments"]);
        argument["token"].as_str().map(String::from).into_iter().chain(inner)
    };
    arguments.as_array().into_iter().flatten().flat_map(of).collect()
}

#[test]
fn help_shows_every_command_with_its_documented_options() {
    let (_server, mut conn) = Server::connected();
    let descriptions = descriptions();
    let help: Vec<_> = conn.execute(&["LOCK.HELP"]).list().iter().map(Reply::text).collect();
    for known in &KNOWN {
        let verb = known.name.trim_start_matches("lock.").to_uppercase();
        // CANCEL has one line for each of its forms.
        let lines: Vec<&str> =
            help.iter().filter(|line| line.split(' ').next() == Some(&verb)).map(String::as_str).collect();
        assert!(!lines.is_empty(), "HELP does not show {verb}: {help:#?}");
        let line = lines.join(" ");
        for option in options(&descriptions[&known.name.to_uppercase()]["arguments"]) {
            let shown = line.split(|c: char| !c.is_ascii_uppercase()).any(|word| word == option);
            assert!(shown, "{option} is missing: {line}");
        }
    }
}

#[test]
fn acl_categories_match_those_of_the_server_and_lock() {
    let (_server, mut conn) = Server::connected();
    if !has_category(&mut conn, "ACL categories") {
        return;
    }
    for known in &KNOWN {
        assert_eq!(words(&info(&mut conn, known.name)[6]), known.categories(), "{}", known.name);
    }
    let all = sorted(KNOWN.iter().map(|known| known.name));
    let mut in_category = |name: &str| words(&conn.execute(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", name]));
    assert_eq!(in_category("lock"), all, "and none of the server's own commands");
    for category in ["admin", "dangerous"] {
        let listed = in_category(category);
        let ours: Vec<_> = listed.iter().filter(|name| name.starts_with("lock.")).collect();
        assert_eq!(ours, ["lock.top"], "{category}");
    }
    let listed = words(&conn.execute(&["ACL", "CAT", "lock"]));
    if listed.is_empty() {
        eprintln!("skipped: ACL CAT lock: this server shows only its own commands there");
    } else {
        assert_eq!(listed, all);
    }
}

/// Cases with too few or too many arguments are in `[error]` of the [`crate::wire`] fixture.
#[test]
fn the_examples_have_enough_arguments() {
    let (_server, mut conn) = Server::connected();
    for known in &KNOWN {
        let right = conn.execute(&[&[known.name], known.example].concat());
        assert!(!matches!(right, Reply::Error(_)), "{}: {right:?}", known.name);
    }
    assert!(conn.execute(&["LOCK.TOP", "COUNT"]).error().starts_with("ERR syntax error"));
}
