//! docs/RECIPES.md: each recipe prevents what it claims to, even if a machine dies or stalls in the middle.
//!
//! The document shows the files of tests/clients/recipes, word for word; programs that use them are run here.

mod cache;
pub mod machine;
mod multiplexed;
mod several;

use machine::{machines, python, start_with};
use testkit::program::Program;
use testkit::{until, Server};

const DOCUMENT: &str = include_str!("../../docs/RECIPES.md");

#[test]
fn the_document_shows_the_recipes_that_are_run() {
    let sources = [
        include_str!("../clients/recipes/cron.py"),
        include_str!("../clients/recipes/leader.py"),
        include_str!("../clients/recipes/idempotent.py"),
        include_str!("../clients/recipes/fenced.py"),
        include_str!("../clients/recipes/customer.py"),
        include_str!("../clients/recipes/shared.py"),
        include_str!("../clients/recipes/transfer.py"),
        include_str!("../clients/recipes/multiplexed.py"),
        include_str!("../clients/recipes/cache.py"),
    ];
    for source in sources {
        assert!(DOCUMENT.contains(&format!("```python\n{source}```\n")), "docs/RECIPES.md does not show:\n{source}");
    }
    assert_eq!(DOCUMENT.matches("```python\n").count(), sources.len());
}

/// Runs the job `daily` for each line of input; the job prints its name, and continues when a line says how it ends.
const CRON: &str = "
from cron import once_per_period
def job(token, died_before):
    say('runs', died_before)
    if hear() == 'fail': raise RuntimeError
while period := hear():
    try: say(once_per_period(client, locks, 'daily', 864000, int(period), job))
    except Exception as error: say(type(error).__name__)
";

#[test]
fn a_cron_job_runs_once_unless_it_failed() {
    let Some((_server, _conn, mut machines)) = machines::<4>(CRON) else { return };
    // All machines try at once, and one runs the job.
    for machine in &mut machines {
        machine.say("60");
    }
    let said: Vec<String> = machines.iter().map(Program::hear).collect();
    assert_eq!(said.iter().filter(|said| *said == "runs False").count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|said| *said == "False").count(), 3, "{said:?}");
    let at = said.iter().position(|said| said == "runs False").unwrap();
    // The job fails, so another machine may run it.
    machines[at].say("fail");
    assert_eq!(machines[at].hear(), "RuntimeError");
    let next = (at + 1) % machines.len();
    assert_eq!(machines[next].ask("60"), "runs False");
    assert_eq!(machines[next].ask("done"), "True");
    // The job is done, so nobody runs it again.
    for machine in &mut machines {
        assert_eq!(machine.ask("60"), "False");
    }
}

#[test]
fn a_dead_or_slow_cron_job_is_taken_over() {
    let Some((_server, _conn, [mut dies, mut slow, mut last])) = machines(CRON) else { return };
    assert_eq!(dies.ask("1"), "runs False");
    drop(dies); // kill -9
    until("the dead machine's lease has expired", || (slow.ask("1") == "runs True").then_some(()));
    until("the slow machine's lease has expired too", || (last.ask("60") == "runs True").then_some(()));
    assert_eq!(last.ask("done"), "True");
    assert_eq!(slow.ask("done"), "LockLost", "the slow job finds out that another one ran at the same time");
}

/// Leads until a line stops it; prints when a term begins and when a write is refused; on `stand` it stops before a
/// write.
const LEADER: &str = "
import os, signal, threading, time
from leader import lead
from fenced import write_redis
told = []
threading.Thread(target=lambda: [told.append(line) for line in iter(hear, '')], daemon=True).start()
seen = set()
def work(term):
    if term not in seen: seen.add(term); say('leads', term)
    time.sleep(0.05)
    if 'stand' in told: told.remove('stand'); say('stands'); os.kill(os.getpid(), signal.SIGSTOP)
    if not write_redis(client, 'chief', term, 'state', term): say('refused')
lead(locks, 'chief', 'node', int(sys.argv[2]), work, lambda: 'stop' in told)
say('follows')
";

#[test]
fn every_lost_leader_has_one_successor() {
    let Some(python) = python() else { return };
    let (server, mut conn) = Server::connected();
    let mut nodes = Vec::new();
    // Only the leader that stalls loses its lock when the lease ends; the grant of the one that dies ends with its
    // connection.
    for (number, lease) in (0..).zip(["600", "600", "10", "600"]) {
        nodes.push(start_with(&python, LEADER, &server, &[lease]));
        // The nodes queue in this order.
        until("it leads or waits", || {
            let info = conn.execute(&["LOCK.INFO", "chief"]);
            (info.field("state").text() == "held" && info.field("waiters").int() == number).then_some(())
        });
    }
    let term = |node: &Program| node.hear().strip_prefix("leads ").expect("a term").parse::<i64>().unwrap();
    let [mut steps_down, dies, mut stands_still, last] = <[Program; 4]>::try_from(nodes).ok().unwrap();
    let first = term(&steps_down);
    steps_down.say("stop");
    let second = term(&dies);
    assert_eq!(steps_down.hear(), "follows");
    drop(dies); // kill -9, which ends its SESSION
    let third = term(&stands_still);
    stands_still.say("stand");
    assert_eq!(stands_still.hear(), "stands");
    let fourth = term(&last);
    assert!(first < second && second < third && third < fourth, "terms grow");
    until("it writes", || (conn.text(&["GET", "state"]) == fourth.to_string()).then_some(()));
    stands_still.signal("CONT");
    // The old leader still believes that it leads, and writes.
    assert_eq!(stands_still.hear(), "refused");
    stands_still.say("stop");
    assert_eq!(stands_still.hear(), "follows", "the old leader has written nothing since");
    assert_eq!(conn.text(&["GET", "state"]), fourth.to_string());
}

/// A payment: printed when made; the result is read from a line of input.
const PAYMENT: &str = "
from idempotent import once
def pay(token):
    say('pays')
    return hear()
while lease := hear():
    try: result = once(client, locks, 'order-7', int(lease), 600, pay); say(getattr(result, 'decode', lambda: result)())
    except Exception as error: say(type(error).__name__)
";

#[test]
fn an_idempotency_key_has_one_result_whoever_asks() {
    let Some((_server, mut conn, [mut first, mut second])) = machines(PAYMENT) else { return };
    assert_eq!(first.ask("60"), "pays");
    second.say("60");
    let info = |conn: &mut testkit::Conn| conn.execute(&["LOCK.INFO", "{order-7}:lock"]);
    until("the second waits", || (info(&mut conn).field("waiters").int() == 1).then_some(()));
    assert_eq!(first.ask("receipt-1"), "receipt-1");
    assert_eq!(second.hear(), "receipt-1", "it did not pay again");
    assert_eq!(info(&mut conn).field("state").text(), "free");
}

#[test]
fn a_slow_payment_is_fenced_off() {
    let Some((_server, _conn, [mut dies, mut slow, mut last])) = machines(PAYMENT) else { return };
    assert_eq!(dies.ask("1"), "pays");
    drop(dies); // kill -9
    assert_eq!(slow.ask("1"), "pays", "after the dead machine's lease");
    assert_eq!(last.ask("60"), "pays", "after the slow machine's lease");
    assert_eq!(slow.ask("receipt-of-the-slow"), "Busy");
    assert_eq!(last.ask("receipt-2"), "receipt-2");
    assert_eq!(slow.ask("1"), "receipt-2");
}

/// Writes to both stores with the token from its input.
const FENCED: &str = "
import sqlite3, sys
from fenced import write_redis, write_sql
db = sqlite3.connect(sys.argv[2])
db.execute('CREATE TABLE item (id PRIMARY KEY, value, token)')
while line := hear():
    token, value = line.split()
    say(write_redis(client, 'lock', int(token), 'data', value), write_sql(db, int(token), 'row', value))
";

#[test]
fn redis_and_sql_fence_an_earlier_holder() {
    let Some(python) = python() else { return };
    let server = Server::start();
    let file = server.dir().join("items.db");
    let mut writer = start_with(&python, FENCED, &server, &[file.to_str().unwrap()]);
    let mut conn = server.conn();
    let early = conn.int(&["LOCK.ACQUIRE", "lock", "EX", "60"]);
    assert_eq!(writer.ask(format!("{early} a")), "True True");
    assert_eq!(writer.ask(format!("{early} b")), "True True", "a holder may write as often as it likes");
    assert_eq!(conn.int(&["LOCK.EXTEND", "lock", &early.to_string(), "PX", "1"]), 1);
    let late = conn.int(&["LOCK.ACQUIRE", "lock", "EX", "60", "WAIT", "20000"]);
    // Nobody has written with the later token yet, so SQL cannot know it, but Redis does.
    assert_eq!(writer.ask(format!("{early} c")), "False True");
    assert_eq!(writer.ask(format!("{late} d")), "True True");
    assert_eq!(writer.ask(format!("{early} e")), "False False");
    assert_eq!(conn.text(&["GET", "data"]), "d");
    assert_eq!(writer.ask(format!("{late} f")), "True True");
}

/// Processes a customer's jobs, one per line of input; a slow job prints a line, and ends when it reads another line.
const CUSTOMER: &str = "
from customer import submit, drain
def handle(job, token):
    name = job.decode()
    client.rpush('log', f'{name} begins')
    if name.startswith('slow'): say(name); hear()
    client.rpush('log', f'{name} ends')
while line := hear():
    verb, customer, argument = line.split()
    say(submit(client, customer, argument) if verb == 'submit' else drain(client, locks, customer, int(argument), handle))
";

#[test]
fn a_customers_jobs_run_one_by_one_in_order() {
    let Some((_server, mut conn, mut workers)) = machines::<3>(CUSTOMER) else { return };
    let mut expected = Vec::new();
    for job in (0..60).map(|number| format!("job-{number}")) {
        assert_eq!(workers[0].ask(format!("submit a {job}")), "None");
        expected.extend([format!("{job} begins"), format!("{job} ends")]);
    }
    for worker in &mut workers {
        worker.say("work a 60");
    }
    for worker in &workers {
        assert_eq!(worker.hear(), "True");
    }
    let log = conn.execute(&["LRANGE", "log", "0", "-1"]);
    let log: Vec<String> = log.list().iter().map(testkit::Reply::text).collect();
    assert_eq!(log, expected);
}

#[test]
fn a_dead_workers_job_is_redone_and_a_slow_one_fenced() {
    let Some((_server, mut conn, [mut dies, mut slow, mut last])) = machines(CUSTOMER) else { return };
    for job in ["slow-1", "slow-2", "fast-3"] {
        assert_eq!(last.ask(format!("submit a {job}")), "None");
    }
    assert_eq!(dies.ask("work a 1"), "slow-1");
    // Another customer is not delayed.
    assert_eq!(last.ask("submit b fast-b"), "None");
    assert_eq!(last.ask("work b 60"), "True");
    drop(dies); // kill -9
    assert_eq!(slow.ask("work a 1"), "slow-1", "again");
    assert_eq!(last.ask("work a 60"), "slow-1", "again, because the slow worker's lease has expired");
    assert_eq!(slow.ask("go on"), "False", "the job no longer belongs to it");
    assert_eq!(last.ask("go on"), "slow-2", "the slow worker did not take this job off the list");
    assert_eq!(last.ask("go on"), "True");
    assert_eq!(conn.int(&["EXISTS", "{customer:a}:jobs", "{customer:a}:lock"]), 0);
    assert_eq!(conn.text(&["LINDEX", "log", "-1"]), "fast-3 ends");
}
