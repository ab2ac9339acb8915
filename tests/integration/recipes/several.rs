//! The recipes with several holders and with several keys.

use super::machine::machines;

/// Holds the lock in the requested way, until a line of input lets it continue.
const HOLDER: &str = "
from shared import ask, read, rebuild
def work(): say('holds'); hear()
while line := hear():
    lease, *share = line.split()
    if not share: rebuild(locks, 'index', int(lease), work)
    elif share == ['SHARED']: read(locks, 'index', int(lease), work)
    else: ask(locks, 'index', int(share[1]), int(lease), work)
    say('ended')
";

#[test]
fn readers_read_together_a_writer_writes_alone_and_neither_overtakes() {
    let Some((_server, mut conn, [mut first, mut second, mut writer, mut late])) = machines(HOLDER) else { return };

    assert_eq!(first.ask("60 SHARED"), "holds");
    assert_eq!(second.ask("60 SHARED"), "holds");
    writer.say("60");
    conn.until_waiters("index", 1);
    late.say("60 SHARED");
    // The late reader waits behind the writer.
    conn.until_waiters("index", 2);
    assert_eq!(first.ask(""), "ended");
    assert_eq!(conn.waiters("index"), 2, "one is still reading");
    assert_eq!(second.ask(""), "ended");
    assert_eq!(writer.hear(), "holds");
    assert_eq!(conn.waiters("index"), 1, "nobody reads while it writes");
    assert_eq!(writer.ask(""), "ended");
    assert_eq!(late.hear(), "holds");
}

#[test]
fn a_dead_machine_frees_its_semaphore_slot() {
    let Some((_server, mut conn, [mut dies, mut works, mut third])) = machines(HOLDER) else { return };

    assert_eq!(works.ask("60 LIMIT 2"), "holds");
    assert_eq!(dies.ask("2 LIMIT 2"), "holds");
    third.say("60 LIMIT 2");
    conn.until_waiters("index", 1);
    drop(dies); // kill -9
    assert_eq!(third.hear(), "holds", "once the dead machine's lease has expired");
    assert_eq!(third.ask(""), "ended");
    assert_eq!(works.ask(""), "ended");
    assert_eq!(conn.int(&["EXISTS", "index"]), 0, "the third took the dead machine's slot, and released it");
}

/// Moves 1 between two accounts, the requested number of times; on `stand` it waits for a line before it decides.
const BANK: &str = "
from transfer import transfer
while line := hear():
    verb, source, target, lease, times = line.split()
    def decide(*balances):
        if verb == 'stand': say('stands'); hear()
        return 1
    for _ in range(int(times)):
        while not (moved := transfer(client, locks, source, target, int(lease), decide)) and verb == 'move': pass
    say(moved)
";

#[test]
fn transfers_lose_nothing_in_any_key_order() {
    let Some((_server, mut conn, [mut one, mut other, mut third, mut slow])) = machines(BANK) else { return };
    for account in ["a", "b", "c"] {
        conn.ok(&["SET", &format!("{{bank}}:{account}"), "100"]);
    }

    // The slow one holds both accounts, and nobody else can get either until its lease expires.
    assert_eq!(slow.ask("stand a b 1 1"), "stands");
    one.say("move a b 60 20");
    other.say("move b a 60 20");
    third.say("move c a 60 20");
    for machine in [&one, &other, &third] {
        assert_eq!(machine.hear(), "True");
    }
    assert_eq!(slow.ask("go on"), "False", "it no longer holds its locks");
    let balances = ["a", "b", "c"].map(|account| conn.text(&["GET", &format!("{{bank}}:{account}")]));
    assert_eq!(balances, ["120", "100", "80"]);
    assert_eq!(conn.int(&["EXISTS", "{bank}:a:lock", "{bank}:b:lock", "{bank}:c:lock"]), 0);
}
