//! The bounds: how many times the cost of its peer an operation of LOCK.* may cost.
//!
//! The one list of it: the benches print verdicts by it, the bench bounds has a line for each.

/// One line of the list.
pub struct Bound {
    pub operation: &'static str,
    /// The peer, below the fraction line of the ratio.
    pub against: &'static str,
    /// Beginnings of the names of the servers that it is for.
    pub on: &'static [&'static str],
    pub at_most: f64,
    /// The measure.
    pub of: Of,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The server's CPU time, in the rounds of the bench of that name.
    Rounds(&'static str),
    /// The server's CPU time of a hand-off.
    Crowd,
    /// `used_memory`.
    Memory,
}

/// Our side, as it is called in the raw files.
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

const fn pair(operation: &'static str, against: &'static str, on: &'static [&'static str], at_most: f64) -> Bound {
    Bound { operation, against, on, at_most, of: Of::Rounds("pair") }
}

const fn several(operation: &'static str, against: &'static str) -> Bound {
    Bound { operation, against, on: ALL, at_most: 0.6, of: Of::Rounds("several") }
}

pub const BOUNDS: [Bound; 14] = [
    pair(PAIR, "SET NX PX + EVALSHA", &["redis-7.0.15", "redis-8.", "valkey-9."], 0.55),
    pair(PAIR, "SET NX PX + DELEX IFEQ", ALL, 1.15),
    pair(PAIR, "SET NX PX + DELIFEQ", ALL, 1.15),
    pair(PAIR, "SET NX PX + DEL", &["redis-7.0.15"], 1.35),
    pair(REFUSED, "SET NX PX", ALL, 1.1),
    pair(EXTEND, "EVALSHA (pexpire)", ALL, 0.5),
    several(SHARED, LUA_SEMAPHORE),
    several(SHARED, BARE_RELEASE),
    several(LIMIT, LUA_SEMAPHORE),
    several(LIMIT, BARE_RELEASE),
    several(LIMIT_REFUSED, LUA_SEMAPHORE),
    several(MANY_KEYS, "EVALSHA + EVALSHA"),
    Bound { operation: HAND_OFF, against: "hand-off with 10", on: ALL, at_most: 1.3, of: Of::Crowd },
    Bound { operation: MEMORY, against: "SET NX PX, 36 bytes", on: ALL, at_most: 1.0, of: Of::Memory },
];

impl Bound {
    pub fn is_for(&self, server: &str) -> bool {
        self.on.iter().any(|start| server.starts_with(start))
    }
}

/// The bound of an operation against a peer on a server, if there is one.
pub fn at_most(operation: &str, against: &str, server: &str) -> Option<f64> {
    let found = BOUNDS.iter().find(|bound| bound.operation == operation && bound.against == against);
    found.filter(|bound| bound.is_for(server)).map(|bound| bound.at_most)
}

/// The cells for a bound and how a ratio stands against it.
pub fn judged(ratio: f64, at_most: Option<f64>) -> [String; 2] {
    [at_most.map_or("-".into(), |bound| format!("{bound:.2}")), verdict(ratio, at_most).into()]
}

/// How a ratio stands against what is expected of it.
pub fn verdict(ratio: f64, at_most: Option<f64>) -> &'static str {
    match at_most {
        None => "-",
        Some(bound) if ratio <= bound => "met",
        Some(_) => "missed",
    }
}
