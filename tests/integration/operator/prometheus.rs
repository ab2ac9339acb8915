//! The complete recipe of docs/OPERATING.md: a server with the module, its exporter with that page's script and
//! permissions, and a Prometheus that scrapes it and has the alerts.
//!
//! On a server where locks are held, waited for, refused, overrun and recovered, every expression of the dashboard has
//! a value, and exactly the alerts that have a cause are active. A server without the module runs beside it.

use super::alerts::{lines_of, ALERTS};
use super::dashboard::expressions;
use super::watching::{exported, metrics_in, sampled};
use crate::metrics::{number, overruns::overrun};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Error, Read, Result, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::install;
use testkit::program::Program;
use testkit::{free_port, project_file, root, skipped, temp_dir, until, Conn, Server, DEADLINE};

/// The body of a successful response; the text of a failed request.
fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    // An HTTP/1.0 response arrives in one piece, and then the connection ends.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| Error::other("no HTTP"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if ["200", "400", "422"].contains(&status) {
        Ok(body.into())
    } else {
        Err(Error::other(head.to_string()))
    }
}

/// A program that serves HTTP on its own port.
struct Service {
    port: u16,
    _program: Program,
}

impl Service {
    /// Starts it, and waits until it answers at `path`.
    fn start(path: &str, command: impl Fn(&str) -> Command) -> Self {
        let mut tries = 0;
        loop {
            let port = free_port();
            let mut program = Program::start(&mut command(&format!("127.0.0.1:{port}")));
            let answers = until("it answers", || match get(port, path) {
                Ok(_) => Some(true),
                Err(_) => program.has_ended().then_some(false),
            });
            if answers {
                return Self { port, _program: program };
            }
            // A port that was free can be taken by another test a moment later.
            tries += 1;
            assert!(tries < 5, "it exits at once");
        }
    }

    /// A server's exporter, called as the page says, with the page's user if there is one.
    fn exporter(program: &Path, server: &Server, is_user: bool) -> Self {
        let page = project_file("docs/OPERATING.md");
        let line = page.lines().find(|line| line.starts_with("redis_exporter ")).expect("a command");
        let line = line.replace("6379", &server.port().to_string());
        Self::start("/metrics", |address| {
            let mut command = Command::new(program);
            command.current_dir(root()).args(line.split(' ').skip(1)).args(["--web.listen-address", address]);
            if is_user {
                command.args(["--redis.user", "exporter", "--redis.password", "secret"]);
            }
            command
        })
    }

    fn instance(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// A folder, removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A Prometheus with the project's alerts.
struct Prometheus {
    service: Service,
    _folder: Folder,
}

impl Prometheus {
    fn scraping(program: &Path, exporters: &[&Service]) -> Self {
        let folder = Folder(temp_dir());
        let targets: Vec<_> = exporters.iter().map(|exporter| exporter.instance()).collect();
        // JSON is YAML.
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [root().join(ALERTS)],
            "scrape_configs": [{"job_name": "redis", "static_configs": [{"targets": targets}]}],
        });
        let file = folder.0.join("prometheus.yml");
        fs::write(&file, config.to_string()).unwrap();
        let service = Service::start("/-/ready", |address| {
            let mut command = Command::new(program);
            command.arg(format!("--config.file={}", file.display()));
            command.arg(format!("--storage.tsdb.path={}", folder.0.join("data").display()));
            command.arg(format!("--web.listen-address={address}"));
            command
        });
        Self { service, _folder: folder }
    }

    /// The API's response; the text of a failed request.
    fn ask(&self, path: &str, parameter: (&str, &str)) -> std::result::Result<Value, String> {
        let mut url = format!("/api/v1/{path}?{}=", parameter.0);
        for byte in parameter.1.bytes() {
            write!(url, "%{byte:02X}").unwrap();
        }
        let answer = get(self.service.port, &url).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        if answer["status"] == "success" {
            Ok(answer["data"].clone())
        } else {
            Err(answer["error"].to_string())
        }
    }

    /// An expression's current values, each with its instance.
    fn values(&self, expression: &str) -> Vec<(String, String)> {
        let data = self.ask("query", ("query", expression)).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let samples = data["result"].as_array().unwrap().iter();
        samples.map(|sample| (text(&sample["metric"]["instance"]), text(&sample["value"][1]))).collect()
    }

    fn value(&self, expression: &str, instance: &str) -> Option<String> {
        self.values(expression).into_iter().find(|(other, _)| other == instance).map(|(_, value)| value)
    }

    /// The rules and their health.
    fn rules(&self) -> Vec<Value> {
        let data = self.ask("rules", ("type", "alert")).unwrap();
        data["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    }

    /// The alerts whose condition holds, including pending ones, each with its instance.
    fn active(&self) -> BTreeSet<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let alerts = self.rules().into_iter().flat_map(|rule| rule["alerts"].as_array().cloned().unwrap_or_default());
        alerts.map(|alert| (text(&alert["labels"]["alertname"]), text(&alert["labels"]["instance"]))).collect()
    }
}

/// Waits until two values are equal, and shows the differences if they do not become equal.
#[track_caller]
fn becomes<T: PartialEq + std::fmt::Debug>(expected: &T, mut now: impl FnMut() -> T) {
    let end = Instant::now() + DEADLINE;
    let mut seen = now();
    while seen != *expected && Instant::now() < end {
        sleep(Duration::from_millis(50));
        seen = now();
    }
    assert_eq!(seen, *expected);
}

/// The alerts whose cause is in [`work`].
const CAUSED: [&str; 12] = [
    "LockHoldersWorkPastTheirLease",
    "LockReleasedLate",
    "LockLeasesOverrun",
    "LockHoldersDie",
    "LockQueueIsLong",
    "LockWaitersNearLimit",
    "LockQueuedNearLimit",
    "LockWaitsFail",
    "LockDeadlocks",
    "LockKeysShared",
    "LocksCanBeEvicted",
    "LockGraceMisconfigured",
];

/// The server for [`work`]. Two blocked clients come close to its limit, and so do 101 attempts with NOTIFY.
fn server() -> Server {
    Server::with().module_args(&["max-waiters", "2", "max-queued", "120"]).start()
}

/// A day on which everything goes wrong. The waiters wait until the returned value is dropped.
fn work(server: &Server, conn: &mut Conn) -> Vec<Conn> {
    // Locks are refused, not granted in time, handed off, extended and released.
    let token = conn.int(&["LOCK.ACQUIRE", "report", "EX", "60"]).to_string();
    for _ in 0..20 {
        assert!(conn.execute(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "1"]).is_nil());
    }
    let mut next = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "60000"]);
    conn.int(&["LOCK.RELEASE", "report", &token]);
    let token = next.read().int().to_string();
    assert_eq!(conn.int(&["LOCK.EXTEND", "report", &token, "EX", "60"]), 1);

    // Releases are too late: within the margin, after it, and after another client took the lock.
    conn.ok(&["CONFIG", "SET", "lock.margin-ms", "600000"]);
    let token = overrun(conn, &["LOCK.ACQUIRE", "slow", "PX", "1"]);
    assert_eq!(conn.int(&["LOCK.RELEASE", "slow", &token]), 1);
    conn.ok(&["CONFIG", "SET", "lock.margin-ms", "0"]);
    let expired = |conn: &mut Conn, key: &str| {
        let token = conn.int(&["LOCK.ACQUIRE", key, "PX", "1"]).to_string();
        until("the lock is expired", || (conn.state(key) == "expired").then_some(()));
        token
    };
    let token = expired(conn, "slower");
    assert_eq!(conn.int(&["LOCK.RELEASE", "slower", &token]), -1);
    let token = expired(conn, "dead");
    conn.int(&["LOCK.ACQUIRE", "dead", "EX", "60"]);
    assert_eq!(conn.int(&["LOCK.RELEASE", "dead", &token]), 0);

    // A cycle of two clients; one of them keeps waiting.
    let (mut one, mut other) = (server.conn(), server.conn());
    one.int(&["LOCK.ACQUIRE", "left", "EX", "600", "SESSION"]);
    other.int(&["LOCK.ACQUIRE", "right", "EX", "600", "SESSION"]);
    one.send(&["LOCK.ACQUIRE", "right", "EX", "60", "WAIT", "600000", "SESSION"]);
    conn.until_waiters("right", 1);
    let refused = other.execute(&["LOCK.ACQUIRE", "left", "EX", "60", "WAIT", "600000", "SESSION"]);
    assert!(refused.error().starts_with("DEADLOCK "), "{refused:?}");

    // There are many waiters, and another program's key.
    let blocked = server.waiter(&["LOCK.ACQUIRE", "report", "EX", "60", "WAIT", "600000"]);
    for id in 1..=101 {
        conn.execute(&[
            "LOCK.ACQUIRE",
            "report",
            "EX",
            "60",
            "WAIT",
            "600000",
            "ID",
            &id.to_string(),
            "NOTIFY",
            "turns",
        ]);
    }
    assert_eq!((number(conn, "blocked"), number(conn, "queued")), (2, 101));
    conn.execute(&["SET", "theirs", "something"]);
    conn.execute(&["LOCK.ACQUIRE", "theirs", "EX", "60"]);

    conn.ok(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    conn.ok(&["CONFIG", "SET", "lock.failover-grace-ms", "600000"]);
    vec![one, other, blocked]
}

#[test]
fn prometheus_shows_events_and_no_false_alerts() {
    let programs = install::prometheus().and_then(|prometheus| Ok((prometheus, install::redis_exporter()?)));
    let (prometheus, exporter) = match programs {
        Ok(programs) => programs,
        Err(why) => return skipped("a server in Prometheus", &why.replace('\n', "; ")),
    };
    let server = server();
    let mut conn = server.conn();
    if conn.is_before_7() {
        return skipped("a server in Prometheus", "this server has neither NOTIFY nor settings in CONFIG");
    }
    let page = project_file("docs/OPERATING.md");
    let user = page.lines().find(|line| line.starts_with("ACL SETUSER exporter ")).expect("its permissions");
    conn.ok(&user.split(' ').collect::<Vec<_>>());
    let without = Server::with().without_module().start();
    let bad = Service::exporter(&exporter, &server, true);
    let missing = Service::exporter(&exporter, &without, false);
    let prometheus = Prometheus::scraping(&prometheus, &[&bad, &missing]);
    let here = bad.instance();

    // A rate needs a value before anything happens.
    let grants = "redis_script_values{key=\"lock_grants\"}";
    until("the first scrape", || prometheus.value(grants, &here));
    let _waiting = work(&server, &mut conn);

    let caused = CAUSED.iter().map(|name| (name.to_string(), here.clone()));
    let expected = caused.chain([("LockModuleMissing".into(), missing.instance())]).collect();
    becomes(&expected, || prometheus.active());
    let rules = prometheus.rules();
    assert_eq!(rules.len(), lines_of(&project_file(ALERTS), "- alert: ").len());
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }

    // Every metric that the server exports, including those of the alerts.
    let names: BTreeSet<_> = exported(&mut conn).into_iter().map(|(name, _)| name).collect();
    let series = |name: &String| format!("redis_script_values{{key=\"{name}\"}}");
    let nameless = || names.iter().filter(|name| prometheus.value(&series(name), &here).is_none()).collect::<Vec<_>>();
    becomes(&Vec::new(), nameless);
    let alerting = rules.iter().flat_map(|rule| metrics_in(rule["query"].as_str().unwrap())).collect::<BTreeSet<_>>();
    let known = &names | &sampled();
    assert!(alerting.is_subset(&known), "there is no {:?}", alerting.difference(&known));
    for name in ["grants", "recoveries", "overruns", "waiters", "longest_queue"] {
        let (key, value) = (format!("lock_{name}"), number(&mut conn, name));
        assert!(value > 0, "{name}");
        becomes(&Some(value.to_string()), || prometheus.value(&series(&key), &here));
    }

    // The expressions of every panel, and those of the page.
    let quantile = page.lines().find(|line| line.starts_with("histogram_quantile(")).expect("a recipe");
    let others = [
        "redis_blocked_clients",
        "redis_commands_total{cmd=\"lock.acquire\"}",
        "redis_commands_failed_calls_total{cmd=\"lock.acquire\"}",
        "redis_exporter_last_scrape_error == 0",
        quantile,
    ];
    let mut shown = expressions();
    assert!(shown.len() > 40, "{shown:?}");
    shown.extend(others.map(String::from));
    let empty = || shown.iter().filter(|text| prometheus.value(text, &here).is_none()).cloned().collect::<Vec<_>>();
    becomes(&Vec::new(), empty);
    let instances = "redis_script_values{key=\"lock_grants\"}";
    let instances = prometheus.ask("label/instance/values", ("match[]", instances)).unwrap();
    assert_eq!(instances, json!([here]), "the instances that the dashboard offers");

    // An unknown metric and an invalid expression are detected.
    assert_eq!(prometheus.values("rate(redis_script_values{key=\"lock_nonsense\"}[5m])"), []);
    assert!(prometheus.ask("query", ("query", "rate(redis_script_values)")).is_err());
}
