//! Recipe 9: one of many processes computes a cache entry, and all get it, even if that process dies or is slow.

use super::machine::machines;
use testkit::program::Program;
use testkit::Conn;

/// Asks for the entry for each line of input, and prints it. An entry that has to be computed is read from a line.
const CACHED: &str = "
from cache import cached
def compute():
    say('computes')
    value = hear()
    if value == 'fail': raise RuntimeError
    return value.encode()
while most := hear():
    try: say(cached(client, locks, 'page', int(most), 600, compute).decode())
    except Exception as error: say(type(error).__name__)
";

/// Each asks for the entry, and waits in this order.
fn wait(conn: &mut Conn, machines: &mut [&mut Program], most_s: &str) {
    for (machine, count) in machines.iter_mut().zip(1..) {
        machine.say(most_s);
        conn.until_waiters("{page}:lock", count);
    }
}

#[test]
fn one_process_computes_a_cache_entry_for_all() {
    let Some((_server, mut conn, [mut first, mut second, mut third])) = machines(CACHED) else { return };
    assert_eq!(first.ask("60"), "computes");
    wait(&mut conn, &mut [&mut second, &mut third], "60");
    for machine in [first.ask("hello"), second.hear(), third.hear()] {
        assert_eq!(machine, "hello", "the others do not compute");
    }
    assert_eq!(second.ask("60"), "hello", "it is in the cache");
    assert_eq!(conn.execute(&["LOCK.INFO", "{page}:lock"]).field("state").text(), "free");
}

#[test]
fn a_cache_entry_survives_a_dead_process_and_a_failure() {
    let Some((_server, mut conn, [mut dies, mut fails, mut last, mut waits])) = machines(CACHED) else { return };
    assert_eq!(dies.ask("2"), "computes");
    wait(&mut conn, &mut [&mut fails, &mut last, &mut waits], "60");
    drop(dies); // kill -9
    assert_eq!(fails.hear(), "computes", "after the dead machine's lease");
    assert_eq!(fails.ask("fail"), "RuntimeError");
    assert_eq!(last.hear(), "computes");
    assert_eq!(last.ask("hello"), "hello");
    assert_eq!(waits.hear(), "hello");
}

#[test]
fn a_process_that_is_too_slow_stores_no_cache_entry() {
    let Some((_server, mut conn, [mut slow, mut next, mut waits])) = machines(CACHED) else { return };
    assert_eq!(slow.ask("1"), "computes");
    wait(&mut conn, &mut [&mut next, &mut waits], "60");
    assert_eq!(next.hear(), "computes", "after the slow machine's lease");
    assert_eq!(slow.ask("old"), "LockLost");
    assert_eq!(next.ask("new"), "new");
    assert_eq!(waits.hear(), "new");
    assert_eq!(slow.ask("1"), "new");
    assert_eq!(conn.text(&["GET", "{page}:cached"]), "new");
}
