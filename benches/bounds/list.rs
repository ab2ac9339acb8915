//! The bounds: how many times its peer's cost an operation of LOCK.* may cost.
//!
//! This is the only such list: the benches take their verdicts from it, and the bench `bounds` prints a line for each.

use crate::measure::state::State;

/// One line of the list.
pub struct Bound {
    pub operation: &'static str,
    /// The peer, below the fraction line of the ratio.
    pub against: &'static str,
    /// The server's replication sinks.
    pub state: State,
    /// Prefixes of the names of the servers to which it applies.
    pub on: &'static [&'static str],
    pub at_most: f64,
    /// The measure.
    pub of: Of,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The server's CPU time, in the rounds of the bench of that name.
    Rounds(&'static str),
    /// The server's instructions for a hand-off.
    HandOff,
    /// The time from one hand-off of a hot lock to the next.
    HotTime,
    /// The server's CPU time for one hand-off.
    HotCpu,
    /// The longest time of a ping, in this part of the bench.
    Pause(&'static str),
    /// `used_memory`.
    Memory,
    /// The time from one hand-off to the next, 64 clients: ours, by its title in the comparison with other systems,
    /// against the fastest lock of another project.
    FastestPeer(&'static str),
    /// The server's CPU time for a hand-off, against the cheapest of [`QUEUED_PEERS`].
    CheapestQueue(&'static str),
    /// The median time of a pair on a free lock, one client, against two plain commands over the same library.
    SameClient(&'static str, &'static str),
    /// The time until the next client has the lock of a killed process.
    KilledHolder(&'static str),
}

/// The locks of other projects whose server has a queue, by their titles in the comparison.
pub const QUEUED_PEERS: [&str; 6] = [
    "Redisson FairLock",
    "etcd concurrency.Mutex",
    "ZooKeeper, Curator",
    "Hazelcast IMap",
    "PostgreSQL advisory lock",
    "PostgreSQL FOR UPDATE",
];
/// The default of `lock.margin-ms`.
pub const MARGIN_S: f64 = 1.0;

/// Our side's name in the raw files.
pub const OURS: &str = "LOCK.*";

const ALL: &[&str] = &[""];

pub const PAIR: &str = "acquire and release";
pub const REFUSED: &str = "acquire, refused";
pub const EXTEND: &str = "extend";
pub const HAND_OFF: &str = "hand-off with 10,000 waiters";
pub const SHARED: &str = "SHARED, 10 others hold it";
pub const LIMIT: &str = "LIMIT 20, 10 others hold it";
pub const LIMIT_REFUSED: &str = "LIMIT 10, refused";
pub const MANY_KEYS: &str = "10 keys at once";
pub const LUA_SEMAPHORE: &str = "Lua semaphore";
/// A release that does not report whether it was in time, as in many libraries.
pub const BARE_RELEASE: &str = "Lua semaphore, ZREM";
pub const MEMORY: &str = "memory of a held lock";
pub const SINGLE: &str = "hand-off with one waiter";
pub const HOT_TIME: &str = "hot lock, 64 clients: time";
pub const HOT_CPU: &str = "hot lock, 64 clients: CPU";
/// The server's own queue of blocked clients: the least that waiting can cost.
pub const CEILING: &str = "BLPOP + RPUSH, no safety";
pub const JOIN: &str = "pause while 10,000 join";
pub const LEAVE: &str = "pause while 10,000 disconnect";
pub const DEMOTION: &str = "pause while a demotion ends 10,000 waits";
/// No iteration of the event loop should take longer.
pub const LONGEST_PAUSE_US: f64 = 5_000.0;

/// A pair, refusal or extension on a server without a replication sink.
const fn alone(operation: &'static str, against: &'static str, on: &'static [&'static str], at_most: f64) -> Bound {
    Bound { operation, against, state: State::NoSink, on, at_most, of: Of::Rounds("pair") }
}

const fn several(operation: &'static str, against: &'static str, at_most: f64) -> Bound {
    Bound { operation, against, state: State::NoSink, on: ALL, at_most, of: Of::Rounds("several") }
}

/// A pair on a server with an AOF and a replica.
const fn heard(on: &'static [&'static str], at_most: f64) -> Bound {
    Bound { operation: PAIR, against: SCRIPT, state: State::AofAndReplica, on, at_most, of: Of::Rounds("pair") }
}

const fn waiting(operation: &'static str, against: &'static str, at_most: f64, of: Of) -> Bound {
    Bound { operation, against, state: State::NoSink, on: ALL, at_most, of }
}

const fn package(operation: &'static str, ours: &'static str, theirs: &'static str) -> Bound {
    waiting(operation, theirs, 1.2, Of::SameClient(ours, theirs))
}

const OVER_JEDIS: &str = "LOCK.*, serverlock over Jedis";
const FASTEST: &str = "the fastest other lock";
const SCRIPT: &str = "SET NX PX + EVALSHA";
const REDIS_8: &[&str] = &["redis-8."];
const NOT_REDIS_8: &[&str] = &["redis-6.", "redis-7.", "valkey-"];
const HAS_DELEX: &[&str] = &["redis-8.4", "redis-8.6", "redis-8.8", "redis-8.10"];
/// On these, modules can replicate a command without looking it up.
const SKIPS_VALIDATION: &[&str] = &["valkey-8.1", "valkey-9."];
const VALIDATES: &[&str] = &["redis-", "valkey-8.0"];

pub const BOUNDS: [Bound; 32] = [
    alone(PAIR, SCRIPT, NOT_REDIS_8, 0.55),
    alone(PAIR, SCRIPT, REDIS_8, 0.62),
    alone(PAIR, "SET NX PX + DELEX IFEQ", HAS_DELEX, 1.08),
    alone(PAIR, "SET NX PX + DELIFEQ", &["valkey-9."], 1.08),
    alone(PAIR, "SET NX PX + DEL", ALL, 1.3),
    heard(VALIDATES, 0.68),
    heard(SKIPS_VALIDATION, 0.58),
    alone(REFUSED, "SET NX PX", ALL, 1.08),
    alone(EXTEND, "EVALSHA (pexpire)", ALL, 0.35),
    several(SHARED, LUA_SEMAPHORE, 0.6),
    several(SHARED, BARE_RELEASE, 0.5),
    several(LIMIT, LUA_SEMAPHORE, 0.6),
    several(LIMIT, BARE_RELEASE, 0.5),
    several(LIMIT_REFUSED, LUA_SEMAPHORE, 0.6),
    several(MANY_KEYS, "EVALSHA + EVALSHA", 0.6),
    waiting(HAND_OFF, SINGLE, 1.1, Of::HandOff),
    // 0.97 of the peer's rate.
    waiting(HOT_TIME, CEILING, 1.0 / 0.97, Of::HotTime),
    waiting(HOT_CPU, CEILING, 1.1, Of::HotCpu),
    waiting(JOIN, "5 ms", 1.0, Of::Pause("pause: join")),
    waiting(LEAVE, "5 ms", 1.0, Of::Pause("pause: disconnect")),
    waiting(DEMOTION, "5 ms", 1.0, Of::Pause("pause: demotion")),
    waiting(MEMORY, "SET NX PX, 36 bytes", 1.0, Of::Memory),
    waiting("64 clients, package over Jedis: time", FASTEST, 1.0, Of::FastestPeer(OVER_JEDIS)),
    waiting("64 clients, commands over Jedis: time", FASTEST, 1.0, Of::FastestPeer("LOCK.* commands, Jedis")),
    waiting("64 clients, package over Jedis: CPU", "the cheapest other queue", 1.0, Of::CheapestQueue(OVER_JEDIS)),
    package("pair, package over Jedis: time", OVER_JEDIS, "SET NX PX and DEL, Jedis"),
    package("pair, package over Lettuce: time", "LOCK.*, serverlock over Lettuce", "SET NX PX and DEL, Lettuce"),
    package("pair, package over go-redis: time", "LOCK.*, serverlock over go-redis", "SET NX PX and DEL, go-redis"),
    package("pair, package over redis-py: time", "LOCK.*, serverlock over redis-py", "SET NX PX and DEL, redis-py"),
    package("pair, package over ioredis: time", "LOCK.*, serverlock over ioredis", "SET NX PX and DEL, ioredis"),
    waiting(
        "killed SESSION over Jedis: time",
        "its margin, 1 s",
        1.2,
        Of::KilledHolder("LOCK.* SESSION, serverlock over Jedis"),
    ),
    waiting(
        "killed SESSION over go-redis: time",
        "its margin, 1 s",
        1.2,
        Of::KilledHolder("LOCK.* SESSION, serverlock over go-redis"),
    ),
];

impl Bound {
    pub fn is_for(&self, server: &str) -> bool {
        self.on.iter().any(|start| server.starts_with(start))
    }
}

/// The bound of an operation against a peer on a server in a state, if there is one.
pub fn at_most(operation: &str, against: &str, state: State, server: &str) -> Option<f64> {
    let is_same = |bound: &&Bound| (bound.operation, bound.against, bound.state) == (operation, against, state);
    BOUNDS.iter().filter(is_same).find(|bound| bound.is_for(server)).map(|bound| bound.at_most)
}

/// The cells for a bound and the verdict on a ratio.
pub fn judged(ratio: f64, at_most: Option<f64>) -> [String; 2] {
    [at_most.map_or("-".into(), |bound| format!("{bound:.2}")), verdict(ratio, at_most).into()]
}

/// How a ratio compares with its bound.
pub fn verdict(ratio: f64, at_most: Option<f64>) -> &'static str {
    match at_most {
        None => "-",
        Some(bound) if ratio <= bound => "met",
        Some(_) => "missed",
    }
}
