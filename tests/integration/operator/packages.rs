//! Checks what docs/OPERATING.md says about applications with the package serverlock, using the Python package: the
//! permissions that they need, and how the runbook shows their locks.

use std::collections::BTreeSet;

use super::watching::page_user;
use crate::recipes::machine::{machines, python, start_with};
use testkit::program::Program;
use testkit::{skipped, until, Conn, Server};

/// Executes one step per input line; `app` logs in as the page's user.
const APPLICATION: &str = r"
import threading, time
from serverlock import LockError
def app(user=None):
    return redis.Redis(port=int(sys.argv[1]), username=user, password=user and 'secret')
def waits(locks, key, **more):
    try: locks.lock(key, lease=30, **more).acquire().release()
    except LockError as error: return type(error).__name__
    return 'granted'
def uses():
    locks = Locks(app('app'))
    with locks.lock('app:a', lease=30) as held:
        held.extend(), held.verify(), held.fenced('SET', 'app:data', 'done')
    with locks.all_of(['app:a', 'app:b'], lease=30) as held:
        held.extend()
    waits(locks, 'app:held', wait=0.1)
    try: locks.recover('app:a', lease=30).acquire()
    except LockError: pass
    next(locks.leader('app:leader', lease=30).observe())
    locks.once('app:daily', 86400).run(lambda held: None)
    waiters = [threading.Thread(target=waits, args=(locks, 'app:held'), kwargs={'wait': 600}, daemon=True) for _ in range(2)]
    for thread in waiters: thread.start()
def waiters(size):
    locks = Locks(app('app'))
    ends = []
    waiters = [threading.Thread(target=lambda: ends.append(waits(locks, 'app:held', wait=600))) for _ in range(size)]
    for thread in waiters: thread.start()
    say('waiting')
    for thread in waiters: thread.join()
    return ' '.join(f'{end} {ends.count(end)}' for end in set(ends))
def holds(lease, key):
    kept.append(locks.lock(key, lease=lease, owner='reports:3').acquire())
def opposite(mine, theirs, owner, session):
    held = locks.lock(mine, lease=60, session=bool(session), owner=owner).acquire()
    say('held')
    hear()
    say(waits(locks, theirs, wait=60 if session else 2, session=bool(session), owner=owner))
    session or hear()
    held.release()
kept = []
while line := hear():
    words = [int(word) if word.isdigit() else word for word in line.split()]
    say(globals()[words[0]](*words[1:]) or 'done')
";

/// A server with an application's user, and one application; `None` if they cannot run.
fn with_user() -> Option<(Server, Conn, Program)> {
    let (server, mut conn, [program]) = machines(APPLICATION)?;
    if conn.is_before_7() {
        skipped(
            "the user of an application with a package",
            "before 7.0, there are no channel permissions and no NOTIFY",
        );
        return None;
    }
    conn.ok(&page_user("app").iter().map(String::as_str).collect::<Vec<_>>());
    // If the server supports it, redis-py reports its name and version: a row on the page grants permission for that.
    if !conn.execute(&["COMMAND", "INFO", "CLIENT|SETINFO"]).list()[0].is_nil() {
        conn.ok(&["ACL", "SETUSER", "app", "+client|setinfo"]);
    }
    Some((server, conn, program))
}

/// The commands, keys and channels that ACL LOG shows as denied.
fn denied(conn: &mut Conn) -> Vec<String> {
    conn.execute(&["ACL", "LOG"]).list().iter().map(|entry| entry.field("object").text()).collect()
}

/// The commands that were used since CONFIG RESETSTAT.
fn used_commands(conn: &mut Conn) -> BTreeSet<String> {
    let stats = conn.text(&["INFO", "commandstats"]);
    let name = |line: &str| Some(line.strip_prefix("cmdstat_")?.split_once(':')?.0.replace('|', " "));
    stats.lines().filter_map(name).collect()
}

#[test]
fn the_application_user_has_minimal_rights() {
    let Some((_server, mut conn, mut program)) = with_user() else { return };
    conn.int(&["LOCK.ACQUIRE", "app:held", "EX", "600"]);
    conn.ok(&["ACL", "SETUSER", "app", "+set"]); // for what the application runs under the lock
    conn.ok(&["CONFIG", "RESETSTAT"]);
    assert_eq!(program.ask("uses"), "done");
    let rights = page_user("app").into_iter().filter_map(|word| word.strip_prefix('+').map(str::to_string));
    let rights: BTreeSet<_> = rights.collect();
    assert!(rights.len() > 10, "{rights:?}");
    // The client pings an idle subscription.
    until("each permission was used", || rights.is_subset(&used_commands(&mut conn)).then_some(()));
    assert_eq!(denied(&mut conn), [""; 0]);
}

/// The number of an application's connections.
fn connections(conn: &mut Conn) -> usize {
    conn.text(&["CLIENT", "LIST"]).lines().filter(|line| line.contains(" user=app ")).count()
}

#[test]
fn fifty_waits_share_a_few_connections() {
    let Some((server, mut conn, mut program)) = with_user() else { return };
    let token = conn.int(&["LOCK.ACQUIRE", "app:held", "EX", "600"]).to_string();
    assert_eq!(program.ask("waiters 50"), "waiting");
    conn.until_waiters("app:held", 50);
    let number = connections(&mut conn);
    assert!((2..=5).contains(&number), "{number}");
    // The first of them waited alone, and blocks until its two-second piece ends.
    until("nobody blocks", || (conn.info("lock", "lock_blocked").as_deref() == Some("0")).then_some(()));
    conn.int(&["LOCK.RELEASE", "app:held", &token]);
    assert_eq!(program.hear(), "granted 50");
    assert_eq!(denied(&mut conn), [""; 0]);

    // Without the channel the waits take turns on eight connections, and none is left out.
    conn.ok(&["ACL", "SETUSER", "app", "resetchannels"]);
    let token = conn.int(&["LOCK.ACQUIRE", "app:held", "EX", "600"]).to_string();
    let python = python().expect("it was found before");
    let mut program = start_with(&python, APPLICATION, &server, &[]);
    let others = connections(&mut conn);
    assert_eq!(program.ask("waiters 50"), "waiting");
    until("eight waits block", || (conn.info("lock", "lock_blocked").as_deref() == Some("8")).then_some(()));
    let number = connections(&mut conn) - others;
    assert!((9..=12).contains(&number), "{number}");
    let denied = denied(&mut conn);
    assert!(denied.len() == 1 && denied[0].starts_with("serverlock:"), "{denied:?}");
    conn.int(&["LOCK.RELEASE", "app:held", &token]);
    assert_eq!(program.hear(), "granted 50");
}

#[test]
fn client_kill_frees_no_renewed_lock_and_erases_its_address() {
    let Some((_server, mut conn, [mut program])) = machines(APPLICATION) else { return };
    assert_eq!(program.ask("holds 6 report"), "done");
    let before = conn.execute(&["LOCK.INFO", "report"]);
    let (client, token) = (before.field("client").int().to_string(), before.field("token").int());
    assert!(before.field("addr").text().starts_with("127.0.0.1:"), "{before:?}");
    assert_eq!(conn.int(&["CLIENT", "KILL", "ID", &client]), 1);
    let now = conn.execute(&["LOCK.INFO", "report"]);
    assert!(now.field("client").is_nil() && now.field("addr").is_nil(), "{now:?}");
    // The lock is renewed over another connection.
    let extends = |conn: &mut Conn| conn.info("lock", "lock_extends").unwrap().parse::<u64>().unwrap();
    let first = extends(&mut conn);
    until("it is renewed", || (extends(&mut conn) > first + 1).then_some(()));
    let now = conn.execute(&["LOCK.INFO", "report"]);
    assert_eq!((now.field("state").text(), now.field("token").int()), ("held".into(), token), "{now:?}");
    assert_eq!(now.field("owner").text(), "reports:3");
}

#[test]
fn notify_waits_find_and_show_no_cycle() {
    let Some((_server, mut conn, [mut one, mut other])) = machines(APPLICATION) else { return };
    assert_eq!(one.ask("opposite left right one 0"), "held");
    assert_eq!(other.ask("opposite right left other 0"), "held");
    one.say("");
    other.say("");
    let mut waits = || {
        let mut wait = |key: &str| conn.execute(&["LOCK.INFO", key, "FULL"]).field("queue").list().first().cloned();
        Some((wait("left")?, wait("right")?))
    };
    let (left, right) = until("both wait", &mut waits);
    // A waiter may use a different connection from the holder, or none: only the owner links the two.
    let mut holder = |key: &str| conn.execute(&["LOCK.INFO", key]).field("client");
    assert_ne!(holder("left"), right.field("client"));
    assert_ne!(holder("right"), left.field("client"));
    assert_eq!((left.field("owner").text(), right.field("owner").text()), ("other".into(), "one".into()));
    // Each keeps its lock until both waits have ended.
    assert_eq!((one.hear(), other.hear()), ("LockTimeout".into(), "LockTimeout".into()));
    one.say("");
    other.say("");
    assert_eq!(conn.info("lock", "lock_deadlocks").as_deref(), Some("0"));
}

/// The session locks of a thread share a connection, so the server sees the cycle.
#[test]
fn session_waits_that_would_close_a_cycle_get_a_deadlock() {
    let Some((_server, mut conn, [mut one, mut other])) = machines(APPLICATION) else { return };
    assert_eq!(one.ask("opposite left right one 1"), "held");
    assert_eq!(other.ask("opposite right left other 1"), "held");
    one.say("");
    until("one waits", || (conn.waiters("right") == 1).then_some(()));
    other.say("");
    assert_eq!(other.hear(), "LockDeadlock");
    assert_eq!(conn.info("lock", "lock_deadlocks").as_deref(), Some("1"));
    // It releases the lock that it still has.
    assert_eq!(one.hear(), "granted");
}
