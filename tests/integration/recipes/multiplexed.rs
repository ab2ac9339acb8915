//! The recipe that waits on a multiplexed connection.

use super::machine::machines;
use testkit::{skipped, Conn};

/// Starts the requested number of attempts. Each prints its number when it holds the lock, and releases it; or prints
/// that it gave up.
const WAITS: &str = "
import asyncio
import redis.asyncio
from multiplexed import Waiting
async def main():
    shared = redis.asyncio.Redis(port=int(sys.argv[1]), single_connection_client=True)
    waiting = Waiting(shared)
    listening = asyncio.create_task(waiting.listen())
    async def attempt(number, wait_s):
        grant = await waiting.acquire('many', 30, wait_s)
        say(number if grant else 'gave up')
        if grant: await shared.execute_command('LOCK.RELEASE', 'many', grant[0])
    attempts = []
    while line := await asyncio.to_thread(hear):
        count, wait_s = line.split()
        attempts += [asyncio.create_task(attempt(number, float(wait_s))) for number in range(int(count))]
asyncio.run(main())
";

/// Whether the server can notify attempts on a channel. If not, prints what is skipped.
fn can_notify(conn: &mut Conn) -> bool {
    let is_old = conn.is_before_7();
    if is_old {
        skipped("the recipe with NOTIFY", "a module cannot publish on this server");
    }
    !is_old
}

#[test]
fn a_lost_subscription_costs_nobody_the_lock() {
    let Some((_server, mut conn, [mut machine])) = machines(WAITS) else { return };
    if !can_notify(&mut conn) {
        return;
    }
    let token = conn.int(&["LOCK.ACQUIRE", "many", "EX", "60"]).to_string();
    machine.say("3 60");
    conn.until_waiters("many", 3);
    assert_eq!(conn.info("clients", "blocked_clients").as_deref(), Some("0"));
    assert_eq!(conn.info("clients", "connected_clients").as_deref(), Some("4"), "calls, messages, PRELUDE, ours");
    assert_eq!(conn.int(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
    conn.int(&["LOCK.RELEASE", "many", &token]);
    assert_eq!([machine.hear(), machine.hear(), machine.hear()], ["0", "1", "2"]);
}

#[test]
fn given_up_and_dead_attempts_do_not_stall_the_queue() {
    let Some((_server, mut conn, [mut dies, mut lives])) = machines(WAITS) else { return };
    if !can_notify(&mut conn) {
        return;
    }
    let token = conn.int(&["LOCK.ACQUIRE", "many", "EX", "60"]).to_string();
    assert_eq!(dies.ask("1 0.2"), "gave up");
    assert_eq!(conn.info("lock", "lock_cancels").as_deref(), Some("1"), "the attempt keeps no place either");
    conn.until_waiters("many", 0);
    dies.say("3 60");
    conn.until_waiters("many", 3);
    lives.say("1 60");
    conn.until_waiters("many", 4);
    drop(dies); // kill -9
    conn.int(&["LOCK.RELEASE", "many", &token]);
    assert_eq!(lives.hear(), "0");
}
