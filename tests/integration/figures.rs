//! Figures in the documents that can be counted or measured. Each is read from the document, so that the figure and its
//! subject cannot diverge.

use testkit::{project_file, until, Conn, Server};

/// A document's text as one line, without comment markers.
fn text(name: &str) -> String {
    project_file(name).split_whitespace().filter(|word| *word != "#").collect::<Vec<_>>().join(" ")
}

/// The part of a text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split_once(after)).unwrap_or_else(|| panic!("'{before}…{after}' is not in the text")).0
}

/// The number between `before` and `after` in a text.
fn number(text: &str, before: &str, after: &str) -> i64 {
    let found = text.match_indices(before).filter_map(|(at, _)| {
        let rest = &text[at + before.len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != ',')?;
        rest[digits..].starts_with(after).then(|| rest[..digits].replace(',', "").parse().ok())?
    });
    let found: Vec<i64> = found.collect();
    assert_eq!(found.len(), 1, "'{before}' and '{after}' enclose a number exactly once");
    found[0]
}

fn used(conn: &mut Conn) -> i64 {
    conn.info("memory", "used_memory").unwrap().parse().unwrap()
}

/// Whether this is the server, with its own allocator, that the memory figures describe. If not, prints a message.
fn is_measured(conn: &mut Conn) -> bool {
    let is_version = conn.text(&["INFO", "server"]).contains("redis_version:7.0.15\r\n");
    let is_usual = conn.text(&["INFO", "memory"]).contains("mem_allocator:jemalloc") && cfg!(target_arch = "x86_64");
    let is_it = is_version && is_usual && std::env::var_os("LOCK_TERM").is_none();
    if !is_it {
        eprintln!("skipped: the memory figures in the documents are for Redis 7.0.15 with jemalloc");
    }
    is_it
}

/// Asserts a difference of at most 5%.
fn assert_near(measured: i64, documented: i64, what: &str) {
    assert!((measured - documented).abs() * 20 <= documented, "{what}: measured {measured}, documented {documented}");
}

/// The README tells its readers which bounds were missed.
#[test]
fn the_readme_names_each_bound_that_was_missed() {
    let (readme, benches) = (project_file("README.md"), project_file("benches/README.md"));
    let (_, table) = benches.split_once("<!-- table: bounds -->").unwrap();
    let (table, _) = table.split_once("<!-- end of table -->").unwrap();
    let missed: Vec<&str> = table.split("**").skip(1).step_by(2).collect();
    assert!(!missed.is_empty());
    for ratios in missed {
        assert!(ratios.split(", ").any(|ratio| readme.contains(ratio)), "README.md does not say {ratios}");
    }
}

#[test]
fn a_waiter_costs_what_the_documents_say() {
    const WAITERS: usize = 200;
    let operating = text("docs/OPERATING.md");
    let arrives = number(&operating, "waiter costs the server ", " KB when it arrives and ");
    let settles = number(&operating, "KB when it arrives and ", " KB once");
    for (name, first, then) in [
        ("docs/DESIGN.md", "blocks costs the server ", "arrives and "),
        ("docs/THREAT_MODEL.md", "waiting on connections, ", "KB each, "),
        ("redis.conf", "Each costs ", "first and "),
    ] {
        let text = text(name).replace("kB", "KB");
        assert_eq!((number(&text, first, " KB"), number(&text, then, " KB once")), (arrives, settles), "{name}");
    }
    let (server, mut conn) = Server::connected();
    if !is_measured(&mut conn) {
        return;
    }
    conn.int(&["LOCK.ACQUIRE", "k", "EX", "600"]);
    let before = used(&mut conn);
    let each = |conn: &mut Conn| (used(conn) - before) / i64::try_from(WAITERS).unwrap();
    let waiters: Vec<_> =
        (0..WAITERS).map(|_| server.sent(&["LOCK.ACQUIRE", "k", "EX", "600", "WAIT", "600000"])).collect();
    let all = format!("lock_waiters:{WAITERS}\r\n");
    until("all wait", || conn.text(&["INFO", "lock"]).contains(&all).then_some(()));
    assert_near(each(&mut conn), arrives * 1000, "when it arrives");
    // The server frees the buffers of idle clients a few at a time.
    let (least, most) = (settles * 950, settles * 1050);
    let settled = until("the buffers have settled", || Some(each(&mut conn)).filter(|bytes| *bytes <= most));
    assert!(settled >= least, "settled: {settled}, documented {settles} KB");
    drop(waiters);
}

#[test]
fn a_holder_among_many_costs_what_the_documents_say() {
    const HOLDERS: i64 = 12_000;
    let documented = number(&text("docs/OPERATING.md"), "ID and an OWNER of 40 bytes, needs ", ".");
    let (_server, mut conn) = Server::connected();
    if !is_measured(&mut conn) {
        return;
    }
    let before = used(&mut conn);
    let owner = "o".repeat(40);
    for n in 0..HOLDERS {
        let id = (1_000_000_000_000_000_000 + n).to_string();
        // A lock has at most 4,096 holders.
        let key = ["k", "l", "m"][usize::try_from(n % 3).unwrap()];
        conn.int(&["LOCK.ACQUIRE", key, "EX", "600", "ID", &id, "OWNER", &owner, "SHARED"]);
    }
    // Growing tables exist twice for a while.
    let most = documented + documented / 20;
    let each = || Some((used(&mut conn) - before) / HOLDERS).filter(|bytes| *bytes <= most);
    assert_near(until("a holder costs no more than that", each), documented, "a holder");
}

#[test]
fn replica_replies_match_the_documents() {
    let semantics = text("docs/SEMANTICS.md");
    let listed = between(&semantics, "its waits end with UNBLOCKED. On a replica ", " work, and the other commands ");
    let listed: Vec<_> = listed.replace(" and ", ", ").split(", ").map(str::to_string).collect();
    let (master, replica) = (Server::start(), Server::start());
    replica.replicate(&master);
    let mut conn = replica.conn();
    let calls: [&[&str]; 13] = [
        &["ACQUIRE", "k", "EX", "5"],
        &["RECOVER", "k", "EX", "5"],
        &["EXTEND", "k", "1", "EX", "5"],
        &["RELEASE", "k", "1"],
        &["CHECK", "k", "1"],
        &["CANCEL", "k", "1"],
        &["MACQUIRE", "1", "k", "EX", "5"],
        &["MEXTEND", "1", "k", "1", "EX", "5"],
        &["MRELEASE", "1", "k", "1"],
        &["INFO", "k"],
        &["SCAN", "0"],
        &["TOP"],
        &["HELP"],
    ];
    let mut answered = Vec::new();
    for call in calls {
        let name = format!("LOCK.{}", call[0]);
        match conn.execute(&[&[name.as_str()], &call[1..]].concat()) {
            testkit::Reply::Error(error) => assert!(error.starts_with("READONLY "), "{name}: {error}"),
            _ => answered.push(call[0].to_string()),
        }
    }
    assert_eq!(answered, listed);
}
