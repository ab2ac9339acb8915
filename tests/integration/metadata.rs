//! What the server knows about each command: arity, flags, keys, documentation, ACL categories.
//!
//! A server that lacks one of these says so when asked, and that part is skipped. `metadata/hints.rs` checks what the
//! command-line client makes of it.

mod hints;

use crate::support::{Conn, Reply, Server};

/// What is to be known of a command.
struct Known {
    name: &'static str,
    arity: i64,
    /// Without `module`, which newer servers add; 6.2 does not know `blocking`.
    flags: &'static [&'static str],
    /// The flags of its one key.
    key: Option<&'static [&'static str]>,
    complexity: &'static str,
    /// The arguments: types behind the names, a choice in parentheses, what is optional in brackets.
    usage: &'static str,
    /// Arguments that it takes.
    example: &'static [&'static str],
}

const LEASE: &str = "(EX seconds:integer|PX milliseconds:integer)";

impl Known {
    /// Whether its first argument tells how many keys there are.
    fn is_counted(&self) -> bool {
        self.usage.starts_with("numkeys")
    }

    /// The categories that a command of the server's own with these flags would have, and `@lock`.
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
        complexity: "O(1) without waiters, O(log N) in them and in the holders",
        usage: "key:key LEASE [WAIT wait:integer] [ID id:integer] [OWNER owner:string] [SESSION] [DETAILS] \
                [(SHARED|LIMIT limit:integer)]",
        example: &["k", "EX", "5"],
    },
    Known {
        name: "lock.recover",
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        key: Some(&["RW", "access", "update"]),
        complexity: "O(1)",
        usage: "key:key LEASE [ID id:integer] [OWNER owner:string] [SESSION]",
        example: &["k", "PX", "5"],
    },
    Known {
        name: "lock.extend",
        arity: 5,
        flags: &["write", "fast"],
        key: Some(&["RW", "update"]),
        complexity: "O(1)",
        usage: "key:key token:integer LEASE",
        example: &["k", "1", "EX", "5"],
    },
    Known {
        name: "lock.release",
        arity: 3,
        flags: &["write", "fast"],
        key: Some(&["RW", "delete"]),
        complexity: "O(1) without waiters, O(log N) in them",
        usage: "key:key token:integer",
        example: &["k", "1"],
    },
    Known {
        name: "lock.check",
        arity: 3,
        flags: &["readonly", "fast"],
        key: Some(&["RO", "access"]),
        complexity: "O(1)",
        usage: "key:key token:integer",
        example: &["k", "1"],
    },
    Known {
        name: "lock.cancel",
        arity: 3,
        flags: &["write", "fast"],
        key: Some(&["RW", "delete"]),
        complexity: "O(log N) in the waiters",
        usage: "key:key id:integer",
        example: &["k", "1"],
    },
    Known {
        name: "lock.info",
        arity: -2,
        flags: &["readonly"],
        key: Some(&["RO", "access"]),
        complexity: "O(1); with FULL O(N) in the waiters and holders shown",
        usage: "key:key [FULL]",
        example: &["k"],
    },
    Known {
        name: "lock.macquire",
        arity: -5,
        flags: &["write", "denyoom", "movablekeys", "blocking"],
        key: Some(&["RW", "access", "update"]),
        complexity: "O(K + log N) with K keys, N the waiters of one of them",
        usage: "numkeys:integer key:key... LEASE [WAIT wait:integer] [ID id:integer] [OWNER owner:string] [SESSION]",
        example: &["1", "k", "EX", "5"],
    },
    Known {
        name: "lock.mextend",
        arity: -6,
        flags: &["write", "movablekeys"],
        key: Some(&["RW", "update"]),
        complexity: "O(K) in the keys",
        usage: "numkeys:integer key:key... token:integer LEASE",
        example: &["1", "k", "1", "EX", "5"],
    },
    Known {
        name: "lock.mrelease",
        arity: -4,
        flags: &["write", "movablekeys"],
        key: Some(&["RW", "delete"]),
        complexity: "O(K) in the keys, and O(log N) more for each that N wait for",
        usage: "numkeys:integer key:key... token:integer",
        example: &["1", "k", "1"],
    },
    Known {
        name: "lock.scan",
        arity: -2,
        flags: &["readonly"],
        key: None,
        complexity: "O(N) in COUNT",
        usage: "cursor:integer [MATCH pattern:string] [COUNT count:integer] [STATE state:string]",
        example: &["0"],
    },
    Known {
        name: "lock.top",
        arity: -1,
        flags: &["readonly", "admin"],
        key: None,
        complexity: "O(K + N log N) with K keys that are waited for and N returned",
        usage: "[COUNT count:integer]",
        example: &[],
    },
    Known {
        name: "lock.help",
        arity: 1,
        flags: &["loading", "stale"],
        key: None,
        complexity: "O(1)",
        usage: "",
        example: &[],
    },
];

/// The reply of COMMAND INFO for one command: six or seven parts before 7.0, ten since.
fn info(conn: &mut Conn, name: &str) -> Vec<Reply> {
    conn.call(&["COMMAND", "INFO", name]).list()[0].list().to_vec()
}

/// Whether the server describes commands in full (7.0); if not, says that `what` is skipped.
fn describes(conn: &mut Conn, what: &str) -> bool {
    let describes = info(conn, "lock.help").len() >= 10;
    if !describes {
        eprintln!("skipped: {what}: this server has no COMMAND DOCS");
    }
    describes
}

/// Whether the server lets a module add an ACL category (Redis 7.4, Valkey 8); if not, says that
/// `what` is skipped.
pub fn has_category(conn: &mut Conn, what: &str) -> bool {
    let has = matches!(conn.call(&["ACL", "CAT", "lock"]), Reply::List(_));
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
fn command_info_tells_arity_flags_and_the_place_of_the_key() {
    let (_server, mut conn) = Server::connected();
    let is_full = describes(&mut conn, "arity, and the flags module and blocking");
    for known in &KNOWN {
        let info = info(&mut conn, known.name);
        assert_eq!(info[0].text(), known.name);
        // Before 7.0 a module cannot tell it: the command itself looks.
        assert_eq!(info[1].int(), if is_full { known.arity } else { -1 }, "arity of {}", known.name);
        let mut flags = known.flags.to_vec();
        if is_full {
            flags.push("module");
        } else {
            flags.retain(|flag| *flag != "blocking");
            // Such a server cannot tell what its caller may read.
            flags.extend((known.name == "lock.scan").then_some("admin"));
        }
        assert_eq!(words(&info[2]), sorted(flags), "flags of {}", known.name);
        let place: Vec<_> = info[3..6].iter().map(Reply::int).collect();
        let expected = match (known.is_counted(), is_full) {
            // Before 7.0 the server looks at rights to keys only where a first key is named.
            (true, false) => [2, 2, 1],
            (true, true) => [0; 3],
            _ => [i64::from(known.key.is_some()); 3],
        };
        assert_eq!(place, expected, "key of {}", known.name);
    }
}

#[test]
fn the_key_has_a_spec_with_what_is_done_to_it() {
    let (_server, mut conn) = Server::connected();
    if !describes(&mut conn, "key specs") {
        return;
    }
    for known in &KNOWN {
        let info = info(&mut conn, known.name);
        let specs = info[8].list();
        let Some(flags) = known.key else {
            assert!(specs.is_empty(), "{}: {specs:?}", known.name);
            continue;
        };
        assert_eq!(specs.len(), 1, "{}", known.name);
        assert_eq!(words(&specs[0].field("flags")), sorted(flags), "{}", known.name);
        let begin = specs[0].field("begin_search");
        assert_eq!(begin.field("type").text(), "index", "{}", known.name);
        assert_eq!(begin.field("spec").field("index").int(), 1, "{}", known.name);
        let find = specs[0].field("find_keys");
        if known.is_counted() {
            assert_eq!(find.field("type").text(), "keynum", "{}", known.name);
            let number = |name| find.field("spec").field(name).int();
            let found = ["keynumidx", "firstkey", "keystep"].map(number);
            assert_eq!(found, [0, 1, 1], "{}", known.name);
            continue;
        }
        assert_eq!(find.field("type").text(), "range", "{}", known.name);
        assert_eq!(find.field("spec").field("lastkey").int(), 0, "{}: one key", known.name);
    }
}

#[test]
fn getkeys_finds_the_key_and_getkeysandflags_what_is_done_to_it() {
    let (_server, mut conn) = Server::connected();
    let is_full = describes(&mut conn, "COMMAND GETKEYSANDFLAGS");
    for known in &KNOWN {
        let mut get = |what: &str| conn.call(&[&["COMMAND", what, known.name], known.example].concat());
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

/// The arguments of COMMAND DOCS as [`Known::usage`] has them.
fn usage(args: &Reply, between: &str) -> String {
    let show = |arg: &Reply| {
        let part = |name: &str| match arg {
            Reply::List(items) => items.chunks(2).find(|pair| pair[0].text() == name).map(|pair| pair[1].clone()),
            other => panic!("not an argument: {other:?}"),
        };
        let kind = arg.field("type").text();
        assert_eq!(part("key_spec_index").is_some(), kind == "key", "{arg:?}");
        let token = part("token").map(|token| token.text());
        let value = match kind.as_str() {
            "oneof" => format!("({})", usage(&arg.field("arguments"), "|")),
            "pure-token" => String::new(),
            kind => format!("{}:{kind}", arg.field("name").text()),
        };
        let both: Vec<_> = token.into_iter().chain(Some(value).filter(|value| !value.is_empty())).collect();
        match part("flags").map(|flags| words(&flags)) {
            None => both.join(" "),
            Some(flags) => {
                if flags == ["multiple"] {
                    return format!("{}...", both.join(" "));
                }
                assert_eq!(flags, ["optional"], "{arg:?}");
                format!("[{}]", both.join(" "))
            }
        }
    };
    args.list().iter().map(show).collect::<Vec<_>>().join(between)
}

#[test]
fn command_docs_has_summary_complexity_version_and_the_arguments_as_a_tree() {
    let (_server, mut conn) = Server::connected();
    if !describes(&mut conn, "COMMAND DOCS") {
        return;
    }
    for known in &KNOWN {
        let docs = conn.call(&["COMMAND", "DOCS", known.name]).field(known.name);
        let summary = docs.field("summary").text();
        assert!(summary.ends_with('.') && (20..120).contains(&summary.len()), "{}: {summary}", known.name);
        assert_eq!(docs.field("complexity").text(), known.complexity, "{}", known.name);
        assert_eq!(docs.field("since").text(), "0.1.0", "{}", known.name);
        assert_eq!(docs.field("group").text(), "module", "{}", known.name);
        assert_eq!(docs.field("module").text(), "lock", "{}", known.name);
        let expected = known.usage.replace("LEASE", LEASE);
        if expected.is_empty() {
            let Reply::List(items) = &docs else { panic!("not a map: {docs:?}") };
            assert!(!items.contains(&Reply::Text(b"arguments".to_vec())), "{}: {docs:?}", known.name);
        } else {
            assert_eq!(usage(&docs.field("arguments"), " "), expected, "{}", known.name);
        }
    }
}

#[test]
fn every_command_of_the_module_is_known_here_and_has_documentation() {
    let (_server, mut conn) = Server::connected();
    let all = conn.call(&["COMMAND"]);
    let names = all.list().iter().map(|command| command.list()[0].text());
    let ours = sorted(names.filter(|name| name.starts_with("lock.")));
    assert_eq!(ours, sorted(KNOWN.iter().map(|known| known.name)));
    if !describes(&mut conn, "COMMAND LIST FILTERBY MODULE") {
        return;
    }
    let listed = words(&conn.call(&["COMMAND", "LIST", "FILTERBY", "MODULE", "lock"]));
    assert_eq!(listed, ours);
    for name in listed {
        assert!(!conn.call(&["COMMAND", "DOCS", &name]).field(&name).field("summary").text().is_empty(), "{name}");
    }
}

#[test]
fn help_shows_every_command_with_the_options_of_its_documentation() {
    let (_server, mut conn) = Server::connected();
    let help: Vec<_> = conn.call(&["LOCK.HELP"]).list().iter().map(Reply::text).collect();
    for known in &KNOWN {
        let verb = known.name.trim_start_matches("lock.").to_uppercase();
        let line = help.iter().find(|line| line.split(' ').next() == Some(&verb));
        let line = line.unwrap_or_else(|| panic!("HELP does not show {verb}: {help:#?}"));
        let usage = known.usage.replace("LEASE", LEASE);
        let options = usage.split(|c: char| !c.is_ascii_uppercase()).filter(|word| word.len() > 1);
        for option in options {
            let shown = line.split(|c: char| !c.is_ascii_uppercase()).any(|word| word == option);
            assert!(shown, "{option} is missing: {line}");
        }
    }
}

#[test]
fn acl_categories_are_those_of_the_servers_own_commands_and_lock() {
    let (_server, mut conn) = Server::connected();
    if !has_category(&mut conn, "ACL categories") {
        return;
    }
    for known in &KNOWN {
        assert_eq!(words(&info(&mut conn, known.name)[6]), known.categories(), "{}", known.name);
    }
    let all = sorted(KNOWN.iter().map(|known| known.name));
    let mut in_category = |name: &str| words(&conn.call(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", name]));
    assert_eq!(in_category("lock"), all, "and no command of the server");
    for category in ["admin", "dangerous"] {
        let listed = in_category(category);
        let ours: Vec<_> = listed.iter().filter(|name| name.starts_with("lock.")).collect();
        assert_eq!(ours, ["lock.top"], "{category}");
    }
    let listed = words(&conn.call(&["ACL", "CAT", "lock"]));
    if listed.is_empty() {
        eprintln!("skipped: ACL CAT lock: this server shows only its own commands there");
    } else {
        assert_eq!(listed, all);
    }
}

/// Too few or too many: `[[error]]` of the fixture of [`crate::wire`].
#[test]
fn the_arguments_of_the_examples_are_enough() {
    let (_server, mut conn) = Server::connected();
    for known in &KNOWN {
        let right = conn.call(&[&[known.name], known.example].concat());
        assert!(!matches!(right, Reply::Error(_)), "{}: {right:?}", known.name);
    }
    assert!(conn.call(&["LOCK.TOP", "COUNT"]).error().starts_with("ERR syntax error"));
}
