//! The rules and the permissions table in docs/OPERATING.md: what each rule allows, and that everything else is denied.

use super::{commands, distinguishes_reading_from_writing, is_denied, KEYLESS};
use crate::metadata::has_category;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use testkit::{project_file, Conn, Reply, Server};

/// The page with the rules; no other page repeats them. (docs/PORTABLE.md has the rules for the script, which
/// `portable::` tests.)
const PAGE: &str = "docs/OPERATING.md";

/// The project's pages, with their names.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders =
        ["", "docs", "clients", "clients/python", "clients/node", "clients/go", "clients/java", "clients/rust"];
    let folders = folders.iter().chain(&["clients/php", "examples"]);
    let files = folders.flat_map(|folder| fs::read_dir(root.join(folder)).unwrap()).map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_string();
    let pages = files.filter(|path| path.extension().is_some_and(|it| it == "md"));
    pages.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

/// What a rule must allow.
struct Rule {
    text: &'static str,
    /// LOCK.* commands on keys with its prefix.
    own: &'static [&'static str],
    /// LOCK.* commands on other keys.
    foreign: &'static [&'static str],
    keyless: &'static [&'static str],
    prefix: &'static str,
}

const ALL: &[&str] = &[
    "LOCK.ACQUIRE",
    "LOCK.CANCEL",
    "LOCK.CHECK",
    "LOCK.EXTEND",
    "LOCK.INFO",
    "LOCK.MACQUIRE",
    "LOCK.MEXTEND",
    "LOCK.MRELEASE",
    "LOCK.RECOVER",
    "LOCK.RELEASE",
];

const RULES: [Rule; 5] = [
    Rule {
        text: "ACL SETUSER app on >secret resetchannels ~app:* &serverlock:* +@lock -@dangerous +subscribe +ping +eval +time",
        own: ALL,
        foreign: &[],
        keyless: &["LOCK.HELP", "LOCK.SCAN"],
        prefix: "app:",
    },
    Rule {
        text: "ACL SETUSER app on >secret resetchannels ~app:* &serverlock:* -@all +lock.acquire +lock.recover \
               +lock.extend +lock.release +lock.cancel +lock.macquire +lock.mextend +lock.mrelease +lock.check +lock.info \
               +subscribe +ping +eval +time",
        own: ALL,
        foreign: &[],
        keyless: &[],
        prefix: "app:",
    },
    Rule {
        text: "ACL SETUSER watcher on >secret %R~* +info +lock.info +lock.check +lock.scan +lock.top +lock.help \
               +client|list +slowlog|get +pubsub|numsub +select +cluster|slots",
        own: &["LOCK.CHECK", "LOCK.INFO"],
        foreign: &["LOCK.CHECK", "LOCK.INFO"],
        keyless: &["LOCK.HELP", "LOCK.SCAN", "LOCK.TOP"],
        prefix: "app:",
    },
    Rule {
        text: "ACL SETUSER janitor on >secret ~* +info +lock.info +lock.release +lock.cancel +lock.scan +lock.top \
               +client|list +client|kill",
        own: &["LOCK.CANCEL", "LOCK.INFO", "LOCK.RELEASE"],
        foreign: &["LOCK.CANCEL", "LOCK.INFO", "LOCK.RELEASE"],
        keyless: &["LOCK.SCAN", "LOCK.TOP"],
        prefix: "app:",
    },
    Rule {
        text: "ACL SETUSER exporter on >secret resetkeys -@all +ping +info +eval +client|setname +config|get +slowlog|get \
               +slowlog|len +latency|latest +latency|histogram",
        own: &[],
        foreign: &[],
        keyless: &[],
        prefix: "app:",
    },
];

/// Recreates the user of a rule and connects as it; `None` if the server does not support the rule.
fn connect(server: &Server, rule: &str) -> Option<Conn> {
    let mut admin = server.conn();
    if rule.contains("@lock") && !has_category(&mut admin, rule) {
        return None;
    }
    if rule.contains("%R~") && !distinguishes_reading_from_writing(server, rule) {
        return None;
    }
    let words: Vec<_> = rule.split(' ').collect();
    admin.int(&["ACL", "DELUSER", words[2]]);
    if let Reply::Error(error) = admin.execute(&words) {
        // Subcommand rules were added in 7.0.
        assert!(rule.contains('|') && !distinguishes_reading_from_writing(server, rule), "{rule}: {error}");
        return None;
    }
    let mut conn = server.conn();
    conn.ok(&["AUTH", words[2], "secret"]);
    Some(conn)
}

fn allowed(conn: &mut Conn, key: &str) -> BTreeSet<String> {
    let all = commands(key).into_iter().filter(|(args, ..)| !is_denied(&conn.execute(args)));
    all.map(|(args, ..)| args[0].to_string()).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn one_page_shows_these_rules_and_no_others() {
    let mut shown = BTreeSet::new();
    for (name, text) in pages() {
        let rules = text.lines().filter(|line| line.trim_start().starts_with("ACL SETUSER ")).map(str::to_string);
        match name.as_str() {
            PAGE => shown.extend(rules),
            "docs/PORTABLE.md" => {}
            _ => assert_eq!(rules.collect::<Vec<_>>(), [""; 0], "{name}: the rules belong on {PAGE}"),
        }
    }
    assert_eq!(shown, RULES.iter().map(|rule| rule.text.to_string()).collect());
}

#[test]
fn each_acl_rule_allows_only_its_purpose() {
    let server = Server::start();
    let mut admin = server.conn();
    let filters = distinguishes_reading_from_writing(&server, "the keys of LOCK.SCAN");
    for rule in &RULES {
        let Some(mut conn) = connect(&server, rule.text) else { continue };
        let (own, other) = (format!("{}a", rule.prefix), "tenant:a");
        admin.ok(&["FLUSHALL"]);
        assert_eq!(allowed(&mut conn, &own), names(rule.own), "{} on {own}", rule.text);
        assert_eq!(allowed(&mut conn, other), names(rule.foreign), "{} on {other}", rule.text);
        let keyless = KEYLESS.iter().filter(|args| !is_denied(&conn.execute(args))).map(|args| args[0].to_string());
        assert_eq!(keyless.collect::<BTreeSet<_>>(), names(rule.keyless), "{}", rule.text);
        // String commands can take and forge a lock too.
        for plain in
            [&["SET", &own, "x"][..], &["GET", &own], &["DEL", &own], &["FLUSHALL"], &["KEYS", "*"], &["SCAN", "0"]]
        {
            assert!(is_denied(&conn.execute(plain)), "{}: {plain:?}", rule.text);
        }

        admin.ok(&["FLUSHALL"]);
        for key in [&own, other] {
            admin.int(&["LOCK.ACQUIRE", key, "EX", "600"]);
        }
        if filters && rule.keyless.contains(&"LOCK.SCAN") {
            let reply = conn.execute(&["LOCK.SCAN", "0", "COUNT", "1000"]);
            let seen: BTreeSet<_> = reply.list()[1].list().iter().map(|row| row.field("key").text()).collect();
            let expected = if rule.foreign.is_empty() { names(&[&own]) } else { names(&[&own, other]) };
            assert_eq!(seen, expected, "{}", rule.text);
        }
        // A script, which a rule may allow, gives no more access than the commands themselves.
        let script = "return redis.call('LOCK.INFO', KEYS[1])";
        if !rule.foreign.contains(&"LOCK.INFO") {
            assert!(matches!(conn.execute(&["EVAL", script, "1", other]), Reply::Error(_)), "{}", rule.text);
        }
    }
}

#[test]
fn the_permissions_table_has_every_command() {
    let text = project_file(PAGE);
    let mut table = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| LOCK.")) {
        let (commands, needs) = line[2..].split_once(" | ").unwrap();
        for command in commands.split(", ") {
            assert!(table.insert(command.to_string(), needs.to_string()).is_none(), "{command} has two rows");
        }
    }
    for (args, reads, writes) in commands("k") {
        let needs = match (reads, writes) {
            (true, true) => "read and write (`%RW~`, or `~`) |",
            (false, true) => "write (`%W~`) |",
            _ => "read (`%R~`) |",
        };
        assert_eq!(table.remove(args[0]).as_deref(), Some(needs), "{}", args[0]);
    }
    for args in KEYLESS {
        let needs = table.remove(args[0]).unwrap_or_else(|| panic!("the table has no row for {}", args[0]));
        assert!(needs.starts_with("no key"), "{}: {needs}", args[0]);
    }
    assert!(table.is_empty(), "{table:?}");
    let server = Server::start();
    let all = server.conn().execute(&["COMMAND"]);
    let ours = all.list().iter().map(|command| command.list()[0].text()).filter(|name| name.starts_with("lock."));
    let known = commands("k").len() + KEYLESS.len();
    assert_eq!(ours.count(), known, "each command of the module is tried above");
}
