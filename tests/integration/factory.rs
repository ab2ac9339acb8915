//! Clients with their default settings: each waits 20 s for a lock that is held for 15 s, with its own time-outs and
//! retries.
//!
//! With an ID each client is granted the lock once, in its place, and leaves no grant behind. The tests also assert
//! what happens without an ID; docs/CLIENTS.md describes it. All clients wait at the same time, on their own keys;
//! clients whose language is not installed are skipped.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use testkit::program::end_within;
use testkit::{bound, install, skipped, until, Conn, Reply, Server, DEADLINE};

/// How long the lock has been held when the client arrives.
const HELD_BEFORE: Duration = Duration::from_secs(1);
/// When the lock is released, counted from the client's arrival. Not a multiple of any time-out.
const RELEASED_AFTER: Duration = Duration::from_millis(14_300);
/// Clients that send again do so until this time.
const GIVES_UP_AFTER: Duration = Duration::from_secs(17);
const WAIT_MS: &str = "20000";
/// A number chosen by the client; it stays the same when the client sends again.
const ID: &str = "4711471147114711";

/// How a client waits.
#[derive(Clone)]
enum Client {
    /// A program in `tests/clients`, and its first arguments.
    Program { program: PathBuf, args: Vec<OsString>, node_path: Option<PathBuf> },
    /// The multiplexed connection of the redis crate; the application sends again after a time-out.
    RedisRs,
    /// Closes its connection after this time and sends again on a new one.
    Closes(Duration),
    /// Leaves its connection open after this time, with the command pending, and sends again on a new one.
    Abandons(Duration),
    /// Leaves its connection open after this time and no longer wants the lock: it sends LOCK.CANCEL.
    Cancels(Duration),
}

impl Client {
    /// A program, or an interpreter with a script in `tests/clients`.
    fn of(program: PathBuf, script: &[&str]) -> Self {
        let args = script.iter().map(|script| install::sources().join(script).into()).collect();
        Self::Program { program, args, node_path: None }
    }
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// One grant, in the first command's place.
    InItsPlace,
    /// One grant, after a later client: each command started at the end of the queue.
    PlaceLost,
    /// An abandoned command was granted the lock: no client has it until the lease ends.
    Orphan,
    /// No grant.
    Gone,
}

/// The client's final result.
#[derive(Debug, PartialEq)]
enum End {
    Released,
    Empty,
}

struct Case {
    name: String,
    client: Client,
    id: Option<&'static str>,
    outcome: Outcome,
}

impl Case {
    fn key(&self) -> String {
        format!("lock:{}", self.name)
    }

    /// The options of every command of this client.
    fn command(&self) -> Vec<String> {
        let mut words = vec!["LOCK.ACQUIRE".to_string(), self.key()];
        words.extend(["EX", "60", "WAIT", WAIT_MS, "OWNER", "client"].map(String::from));
        words.extend(self.id.map(|id| ["ID".to_string(), id.to_string()]).into_iter().flatten());
        words
    }
}

/// Every client, with and without an ID.
fn cases() -> Vec<Case> {
    use Outcome::{Gone, InItsPlace, Orphan, PlaceLost};
    let mut all: Vec<(&str, Client, Outcome, Option<Outcome>)> = vec![
        ("redis-rs", Client::RedisRs, InItsPlace, Some(Orphan)),
        ("closes", Client::Closes(Duration::from_secs(3)), InItsPlace, Some(PlaceLost)),
        ("abandons", Client::Abandons(Duration::from_secs(2)), InItsPlace, Some(Orphan)),
        ("cancels", Client::Cancels(Duration::from_secs(2)), Gone, None),
    ];
    match install::python() {
        Ok(program) => all.push(("redis-py", Client::of(program, &["redis_py.py"]), InItsPlace, Some(PlaceLost))),
        Err(why) => skipped("redis-py", &why),
    }
    match install::go_redis() {
        Ok(program) => all.push(("go-redis", Client::of(program, &[]), Gone, Some(Gone))),
        Err(why) => skipped("go-redis", &why),
    }
    match install::php() {
        Ok(interpreter) => {
            for name in ["phpredis", "predis"] {
                let args = vec![install::sources().join("as_they_come.php").into(), name.into()];
                let client = Client::Program { program: interpreter.clone(), args, node_path: None };
                all.push((name, client, InItsPlace, Some(InItsPlace)));
            }
        }
        Err(why) => skipped("phpredis and predis", &why),
    }
    match install::ruby() {
        Ok(program) => all.push(("redis-rb", Client::of(program, &["redis_rb.rb"]), Gone, Some(Gone))),
        Err(why) => skipped("redis-rb", &why),
    }
    match install::ruby_with_redis_5() {
        Ok((program, mut args)) => {
            args.push(install::sources().join("redis_rb.rb").into());
            all.push(("redis-rb 5", Client::Program { program, args, node_path: None }, Gone, Some(Gone)));
        }
        Err(why) => skipped("redis-rb 5", &why),
    }
    match install::java_waits() {
        Ok(args) => {
            let with_and_without =
                [("jedis", Gone, Gone), ("lettuce", InItsPlace, InItsPlace), ("redisson", InItsPlace, Orphan)];
            for (name, outcome, without) in with_and_without {
                let args = args.iter().map(OsString::from).chain([name.into()]).collect();
                let client = Client::Program { program: "java".into(), args, node_path: None };
                all.push((name, client, outcome, Some(without)));
            }
        }
        Err(why) => skipped("Jedis, Lettuce and Redisson", &why),
    }
    match install::node_path() {
        Ok(path) => {
            for name in ["node-redis", "ioredis"] {
                let args = vec![install::sources().join("as_they_come.js").into(), name.into()];
                let client = Client::Program { program: "node".into(), args, node_path: Some(path.clone()) };
                all.push((name, client, InItsPlace, Some(InItsPlace)));
            }
        }
        Err(why) => skipped("node-redis and ioredis", &why),
    }
    let mut cases = Vec::new();
    for (name, client, with_id, without) in all {
        cases.push(Case { name: name.into(), client: client.clone(), id: Some(ID), outcome: with_id });
        if let Some(outcome) = without {
            cases.push(Case { name: format!("{name}, no ID"), client, id: None, outcome });
        }
    }
    cases
}

#[test]
fn default_clients_wait_fifteen_seconds_for_a_lock() {
    let cases = cases();
    // A server that streams to its replicas waits for more replicas before it starts.
    let server = Server::with().args(&["--repl-diskless-sync-delay", "0"]).start();
    let mut stream = server.replication_stream();
    let ends: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = cases
            .iter()
            .map(|case| {
                let play = || play(&server, case);
                thread::Builder::new().name(case.name.clone()).spawn_scoped(scope, play).unwrap()
            })
            .collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });

    server.conn().ok(&["SET", "end", "1"]);
    let grants = grants(&mut stream);
    let mut failures = Vec::new();
    for (case, end) in cases.iter().zip(ends) {
        let granted: Vec<&str> = grants[&case.key()].iter().map(|grant| grant.owner.as_str()).collect();
        let expected: &[&str] = match case.outcome {
            Outcome::InItsPlace => &["holder", "client", "rival"],
            Outcome::PlaceLost => &["holder", "rival", "client"],
            Outcome::Orphan => &["holder", "client"],
            Outcome::Gone => &["holder", "rival"],
        };
        if end.is_err() || granted != expected {
            failures.push(format!("{}: expected {:?}; granted to {granted:?}", case.name, case.outcome));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Runs one case to completion.
fn play(server: &Server, case: &Case) {
    let key = &*case.key();
    let mut holder = server.conn();
    let held = holder.int(&["LOCK.ACQUIRE", key, "EX", "60", "OWNER", "holder"]).to_string();
    thread::sleep(HELD_BEFORE);
    thread::scope(|scope| {
        let client = scope.spawn(|| wait_for_it(server, case));
        let waiters = |conn: &mut Conn| conn.waiters(key);
        until("the client waits", || (waiters(&mut holder) == 1).then_some(()));
        let since = Instant::now();
        // A client that arrives right after it, and stays.
        let mut rival = server.sent(&["LOCK.ACQUIRE", key, "EX", "60", "WAIT", "60000", "OWNER", "rival"]);
        until("the rival waits", || (waiters(&mut holder) == 2).then_some(()));

        thread::sleep(RELEASED_AFTER.saturating_sub(since.elapsed()));
        assert_eq!(holder.int(&["LOCK.RELEASE", key, &held]), 1);
        if case.outcome == Outcome::Orphan {
            assert_eq!(client.join().unwrap(), End::Empty);
            assert!(rival.no_reply_within(Duration::from_millis(1)), "the rival got it");
            let lock = holder.execute(&["LOCK.INFO", key]);
            assert_eq!((lock.field("state").text(), lock.field("owner").text()), ("held".into(), "client".into()));
            return;
        }
        let token = rival.read().int().to_string();
        assert_eq!(rival.int(&["LOCK.RELEASE", key, &token]), 1);
        let end = if case.outcome == Outcome::Gone { End::Empty } else { End::Released };
        assert_eq!(client.join().unwrap(), end);
        let lock = holder.execute(&["LOCK.INFO", key]);
        assert_eq!((lock.field("state").text(), lock.field("waiters").int()), ("free".into(), 0));
    });
}

/// Waits like the client, and releases its grant.
fn wait_for_it(server: &Server, case: &Case) -> End {
    match &case.client {
        Client::Program { program, args, node_path } => run(server, case, program, args, node_path.as_deref()),
        Client::RedisRs => redis_rs(server, case),
        Client::Closes(patience) => sends_again(server, case, *patience, false),
        Client::Abandons(patience) => sends_again(server, case, *patience, true),
        Client::Cancels(patience) => cancels(server, case, *patience),
    }
}

fn run(server: &Server, case: &Case, program: &Path, args: &[OsString], node_path: Option<&Path>) -> End {
    let mut command = Command::new(program);
    command.args(args).arg(server.port().to_string()).args([&case.key(), "client"]);
    command.args(case.id).stdin(Stdio::null()).stdout(Stdio::piped());
    if let Some(path) = node_path {
        command.env("NODE_PATH", path);
    }
    let mut child = command.spawn().unwrap();
    end_within(&mut child, RELEASED_AFTER + DEADLINE);
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    match &lines[..] {
        [token, "released 1"] if token.starts_with("token 1") => End::Released,
        [gave_up] if gave_up.starts_with("gave up: ") => End::Empty,
        [] => panic!("the client was not ready in time"),
        _ => panic!("{said}"),
    }
}

fn redis_rs(server: &Server, case: &Case) -> End {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut conn = client.get_multiplexed_async_connection().await.unwrap();
        let end = Instant::now() + GIVES_UP_AFTER;
        let words = case.command();
        let mut command = redis::cmd(&words[0]);
        command.arg(&words[1..]);
        while Instant::now() < end {
            let sent = Instant::now();
            match command.query_async::<Option<i64>>(&mut conn).await {
                Ok(token) => {
                    let token = token.expect("a token");
                    let released = redis::cmd("LOCK.RELEASE").arg(case.key()).arg(token).query_async(&mut conn).await;
                    assert_eq!(released, Ok(1));
                    return End::Released;
                }
                Err(error) => {
                    assert!(error.is_timeout(), "{error}");
                    let took = sent.elapsed();
                    assert!(took >= Duration::from_millis(400), "its time-out is no longer 500 ms: {took:?}");
                    bound::wall("a time-out of 500 ms", Duration::from_secs(5), took);
                }
            }
        }
        End::Empty
    })
}

/// The reply, if it arrives within `patience`.
fn read_within(conn: &mut Conn, patience: Duration) -> Option<Reply> {
    (!conn.no_reply_within(patience)).then(|| conn.read())
}

fn release(conn: &mut Conn, case: &Case, token: &Reply) -> End {
    assert_eq!(conn.int(&["LOCK.RELEASE", &case.key(), &token.int().to_string()]), 1);
    End::Released
}

/// Sends again on a new connection each time; abandoned connections stay open.
fn sends_again(server: &Server, case: &Case, patience: Duration, abandons: bool) -> End {
    let mut abandoned: Vec<Conn> = Vec::new();
    let end = Instant::now() + GIVES_UP_AFTER;
    while Instant::now() < end {
        let mut conn = server.conn();
        conn.send(&case.command());
        if let Some(token) = read_within(&mut conn, patience) {
            // The server ended each wait when the next command took its place.
            for conn in &mut abandoned {
                assert!(conn.read().error().starts_with("UNBLOCKED "));
            }
            return release(&mut conn, case, &token);
        }
        if abandons {
            abandoned.push(conn);
        }
    }
    End::Empty
}

fn cancels(server: &Server, case: &Case, patience: Duration) -> End {
    let mut abandoned = server.conn();
    abandoned.send(&case.command());
    assert_eq!(read_within(&mut abandoned, patience), None);
    assert_eq!(server.conn().int(&["LOCK.CANCEL", &case.key(), ID]), 1);
    assert_eq!(abandoned.read(), Reply::Nil);
    End::Empty
}

/// A grant, as seen by replicas.
struct Grant {
    token: String,
    owner: String,
}

/// All grants of each key, in order, until the key `end` appears.
fn grants(stream: &mut Conn) -> HashMap<String, Vec<Grant>> {
    let mut grants: HashMap<String, Vec<Grant>> = HashMap::new();
    loop {
        let command = match stream.try_read() {
            Ok(Reply::List(words)) => words,
            // A PING from the master.
            Ok(_) => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => panic!("the stream ended: {error}"),
        };
        let words: Vec<String> = command.iter().map(Reply::text).collect();
        if words[0] != "SET" {
            continue;
        }
        if words[1] == "end" {
            return grants;
        }
        // 17 characters of time, 16 of the token, then a space and the owner.
        let (token, owner) = (words[2][17..33].to_string(), words[2].rsplit(' ').next().unwrap().to_string());
        let of_key = grants.entry(words[1].clone()).or_default();
        // A holder that sends its command again extends its lease: it is the same grant.
        if of_key.last().is_none_or(|last| last.token != token) {
            of_key.push(Grant { token, owner });
        }
    }
}
