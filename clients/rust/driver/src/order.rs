//! An order, and its arguments.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use serverlock::{Error, Hooks, Options, Predecessor};

use crate::say;

/// The error of an answer.
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

pub(crate) type Answer = Result<Value, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { kind: error.code(), text: error.to_string() }
    }
}

impl From<redis::RedisError> for Failure {
    fn from(error: redis::RedisError) -> Self {
        Self { kind: "unknown", text: error.to_string() }
    }
}

/// The error of an order that Rust cannot carry out.
pub(crate) fn cannot(text: impl Into<String>) -> Failure {
    Failure { kind: "cannot", text: text.into() }
}

/// The error of a body that fails.
pub(crate) fn of_work() -> Failure {
    Failure { kind: "work", text: "the work failed".into() }
}

#[derive(Clone)]
pub(crate) struct Order(pub(crate) Value);

impl Order {
    pub(crate) fn get(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.get(name).as_str().unwrap_or_default().to_owned()
    }

    /// The name of the in-memory server on which the manager is to be opened; `None` for a real one.
    pub(crate) fn memory(&self) -> Option<String> {
        let at = self.get("at");
        let text = |name: &str| at.get(name).and_then(Value::as_str);
        let is_memory = text("kind") == Some("memory");
        is_memory.then(|| text("name").unwrap_or_default().to_owned())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.get(name).as_bool() == Some(true)
    }

    /// Reads milliseconds. Durations in Rust cannot be negative.
    pub(crate) fn span(&self, name: &str) -> Result<Duration, Failure> {
        let ms = self.get(name);
        let span = ms.as_f64().and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        span.ok_or_else(|| cannot(format!("a duration that is {ms}")))
    }

    pub(crate) fn span_or(&self, name: &str, default: Duration) -> Result<Duration, Failure> {
        if self.has(name) {
            return self.span(name);
        }
        Ok(default)
    }

    pub(crate) fn key(&self) -> Result<Vec<u8>, Failure> {
        bytes(self.get("key"))
    }

    /// What `compute` returns.
    pub(crate) fn value(&self) -> Result<Vec<u8>, Failure> {
        if self.has("value") { bytes(self.get("value")) } else { Ok(Vec::new()) }
    }

    pub(crate) fn keys(&self) -> Result<Vec<Vec<u8>>, Failure> {
        self.get("keys").as_array().map(Vec::as_slice).unwrap_or_default().iter().map(bytes).collect()
    }

    /// A command, as the application sends it.
    pub(crate) fn command(&self) -> redis::Cmd {
        let mut cmd = redis::Cmd::new();
        for word in self.get("args").as_array().map(Vec::as_slice).unwrap_or_default() {
            cmd.arg(word.as_str().map_or_else(|| word.to_string(), str::to_owned));
        }
        cmd
    }

    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::new();
        if self.has("timeout_ms") {
            options = options.timeout(self.span("timeout_ms")?);
        }
        if self.get("portable").as_bool() == Some(false) {
            options = options.without_scripts();
        }
        if self.is("hooks") {
            options = options.hooks(hooks(&self.text("manager")));
        }
        Ok(options)
    }
}

/// Reads bytes: text, or hexadecimal digits.
fn bytes(value: &Value) -> Result<Vec<u8>, Failure> {
    if let Some(text) = value.as_str() {
        return Ok(text.into());
    }
    let hex = value.get("hex").and_then(Value::as_str).ok_or_else(|| cannot(format!("bytes that are {value}")))?;
    let byte = |at: usize| hex.get(at..at.saturating_add(2)).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    (0..hex.len()).step_by(2).map(|at| byte(at).ok_or_else(|| cannot("hex"))).collect()
}

pub(crate) fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

fn hooks(manager: &str) -> Hooks {
    let tell = |name: &'static str, field: &'static str| {
        let manager = manager.to_owned();
        move |key: &str, span: Duration| {
            let mut line = json!({"event": "hook", "manager": manager, "name": name, "key": key});
            if let Some(fields) = line.as_object_mut() {
                fields.insert(field.to_owned(), json!(ms(span)));
            }
            say(&line);
        }
    };
    let (granted, refused) = (tell("granted", "waited_ms"), tell("refused", "waited_ms"));
    let (lost, released) = (tell("lost", "held_ms"), tell("released", "held_ms"));
    Hooks::new()
        .granted(granted)
        .refused(move |key, span, _| refused(key, span))
        .lost(move |key, span, _| lost(key, span))
        .released(move |key, span, _| released(key, span))
}

/// Reports a loss under the name of the hold, the scope or the object.
pub(crate) fn report_loss(
    field: &'static str,
    name: String,
    takes: Duration,
) -> impl Fn(&Error) + Send + Sync + 'static {
    move |error| {
        std::thread::sleep(takes);
        let mut line = json!({"event": "lost", "text": error.to_string()});
        if let Some(fields) = line.as_object_mut() {
            fields.insert(field.to_owned(), json!(name));
        }
        say(&line);
    }
}

pub(crate) fn granted(token: i64, predecessor: Option<&Predecessor>) -> Value {
    let before = predecessor.map(|it| json!({"overdue_ms": ms(it.overdue), "token": it.token, "owner": it.owner}));
    json!({"token": token, "predecessor": before})
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        _ = write!(hex, "{byte:02x}"); // a String takes everything
        hex
    })
}

/// The answer to an order `single_flight`.
pub(crate) fn flown(value: Vec<u8>, computed: bool) -> Value {
    let value = String::from_utf8(value).map_or_else(|error| json!({"hex": hex_of(error.as_bytes())}), Value::String);
    json!({"value": value, "computed": computed})
}

/// A reply as JSON.
pub(crate) fn plain(reply: &redis::Value) -> Value {
    match reply {
        redis::Value::Int(number) => json!(number),
        redis::Value::Okay => json!("OK"),
        redis::Value::SimpleString(text) => json!(text),
        redis::Value::BulkString(bytes) => json!(String::from_utf8_lossy(bytes)),
        redis::Value::Array(list) => list.iter().map(plain).collect(),
        _ => Value::Null,
    }
}

/// The lock of an order, in either form. A loss is reported under that name.
macro_rules! lock_of {
    ($locks:expr, $order:expr, $field:literal) => {{
        let (locks, order) = (&$locks, $order);
        let lease = order.span("lease_ms")?;
        let mut lock = if order.has("keys") {
            locks.all_of(order.keys()?, lease)
        } else if order.is("shared") {
            locks.shared(order.key()?, lease)
        } else if let Some(n) = order.get("limit").as_u64() {
            locks.limit(order.key()?, u32::try_from(n).unwrap_or(u32::MAX), lease)
        } else if order.is("recover") {
            locks.recover(order.key()?, lease)
        } else {
            locks.lock(order.key()?, lease)
        };
        if order.has("wait_ms") {
            lock = lock.wait(order.span("wait_ms")?);
        }
        if order.has("at_least_ms") {
            lock = lock.at_least(order.span("at_least_ms")?);
        }
        if order.has("max_hold_ms") {
            lock = lock.max_hold(order.span("max_hold_ms")?);
        }
        let within = order.span_or("replicas_within_ms", std::time::Duration::from_secs(1))?;
        if let Some(count) = order.get("replicas").as_u64() {
            lock = lock.replicas(u32::try_from(count).unwrap_or(u32::MAX), within);
        }
        if order.is("fsync") {
            lock = lock.fsync(within);
        }
        if order.is("session") {
            lock = lock.session();
        }
        if let Some(owner) = order.get("owner").as_str() {
            lock = lock.owner(owner);
        } else if order.has("owner") {
            lock = lock.without_owner();
        }
        if order.is("details") {
            lock = lock.details();
        }
        if order.is("reentrant") {
            lock = lock.reentrant();
        }
        let takes = order.span_or("lost_takes_ms", std::time::Duration::ZERO)?;
        lock.on_lost($crate::order::report_loss($field, order.text($field), takes))
    }};
}

/// The description of an order `once`, in either form.
macro_rules! once_of {
    ($locks:expr, $order:expr) => {{
        let (locks, order) = (&$locks, $order);
        let mut once = locks.once(order.key()?, order.span("period_ms")?);
        if order.has("lease_ms") {
            once = once.lease(order.span("lease_ms")?);
        }
        if order.has("max_hold_ms") {
            once = once.max_hold(order.span("max_hold_ms")?);
        }
        if let Some(reruns) = order.get("rerun").as_bool() {
            once = once.rerun(reruns);
        }
        if let Some(owner) = order.get("owner").as_str() {
            once = once.owner(owner);
        } else if order.has("owner") {
            once = once.without_owner();
        }
        once.on_lost($crate::order::report_loss("scope", order.text("scope"), std::time::Duration::ZERO))
    }};
}

/// The description of an order `single_flight`, in either form.
macro_rules! flight_of {
    ($locks:expr, $order:expr) => {{
        let (locks, order) = (&$locks, $order);
        let mut flight = locks.single_flight(order.key()?, order.span("lease_ms")?);
        if order.has("wait_ms") {
            flight = flight.wait(order.span("wait_ms")?);
        }
        if order.has("max_hold_ms") {
            flight = flight.max_hold(order.span("max_hold_ms")?);
        }
        if let Some(owner) = order.get("owner").as_str() {
            flight = flight.owner(owner);
        } else if order.has("owner") {
            flight = flight.without_owner();
        }
        flight.on_lost($crate::order::report_loss("scope", order.text("scope"), std::time::Duration::ZERO))
    }};
}

pub(crate) use {flight_of, lock_of, once_of};
