//! Thousands of random commands, good and hostile, from a printed seed: the server is the same one
//! afterwards, every reply is of a known kind, the tokens of a key never go back.

use std::collections::{BTreeSet, HashMap};

use super::{info, run_id};
use crate::support::{show, Conn, Reply, Server};

const COMMANDS: usize = 20_000;
/// Commands in one pipeline; a token is used from the next one on.
const BATCH: usize = 10;
const SEED: u64 = 0x10C4_2026;

/// `SplitMix64`: the same numbers from the same seed, everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Up to 40 bytes of any kind.
    pub fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(41)).map(|_| u8::try_from(self.next() % 256).unwrap()).collect()
    }
}

pub const KEYS: &[&str] = &["a", "b", "c", "d", "\0", "名", "", "list", "hash"];
pub const NUMBERS: &[&str] = &[
    "0",
    "1",
    "7",
    "42",
    "5000",
    "-1",
    "+1",
    "1.5",
    "",
    " 1",
    "315360000000",
    "315360000001",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1763710000482913",
];
pub const VALUES: &[&str] = &[
    "1763710031",
    "1763710031.48",
    "1763710031482",
    "9199999999999999999",
    "9999999999",
    "true",
    "",
    "-1",
    "1763710031.4829131763710000482913",
    "9999999999.9999991763710000482913 bob",
    "1763710031.48291317637100004829130000000000000000042 alice",
    "1763710031.4829139007199254740991",
    "1763710031.4829131763710000482913 ",
    "0000000000.0000000000000000000000",
];

/// All tokens that were given, by key.
type Given = HashMap<Vec<u8>, BTreeSet<i64>>;

/// One command; mostly of LOCK.*, mostly well-formed.
fn command(random: &mut Random, given: &Given) -> Vec<Vec<u8>> {
    let key = random.pick(KEYS).as_bytes().to_vec();
    let late = given.get(&key).and_then(|tokens| tokens.iter().nth_back(random.below(3)));
    let token = match (random.below(8), late) {
        (0, _) => number(random),
        // That of the expired values among VALUES.
        (1..=3, _) | (_, None) => b"1763710000482913".to_vec(),
        (_, Some(token)) => token.to_string().into(),
    };
    if random.one_in(6) {
        return several(random, key, token);
    }
    let mut args: Vec<Vec<u8>> = match random.below(20) {
        0..=6 => vec![b"LOCK.ACQUIRE".to_vec(), key],
        7..=8 => vec![b"LOCK.RECOVER".to_vec(), key],
        9..=11 => vec![b"LOCK.RELEASE".to_vec(), key, token],
        12..=13 => vec![b"LOCK.EXTEND".to_vec(), key, token, b"PX".to_vec(), number(random)],
        14 => vec![b"LOCK.CHECK".to_vec(), key, token],
        15 => vec![b"LOCK.INFO".to_vec(), key],
        16 => return vec![b"SET".to_vec(), key, random.pick(VALUES).into()],
        17 => return vec![b"SET".to_vec(), key, random.pick(VALUES).into(), b"PX".to_vec(), b"3".to_vec()],
        18 => return vec![random.pick(&["DEL", "UNLINK", "PERSIST", "LOCK.HELP"]).into(), key],
        _ => {
            let value = random.pick(VALUES).into();
            return vec![random.pick(&["GETSET", "SETNX", "RPUSH", "APPEND"]).into(), key, value];
        }
    };
    if args[0] == b"LOCK.ACQUIRE" || args[0] == b"LOCK.RECOVER" {
        if !random.one_in(20) {
            args.extend([random.pick(&["PX", "px", "EX"]).into(), number(random)]);
        }
        if args[0] == b"LOCK.ACQUIRE" && random.one_in(3) {
            args.push(random.pick(&["SHARED", "shared", "LIMIT"]).into());
            if args.last().is_some_and(|last| last == b"LIMIT") {
                args.push(number(random));
            }
        }
        while random.one_in(3) {
            match random.below(10) {
                0..=3 => args.extend([b"ID".to_vec(), number(random)]),
                4..=6 => args.extend([b"OWNER".to_vec(), random.pick(&["alice", "bob", "carol", "a b", "\0"]).into()]),
                7..=8 => args.push(b"DETAILS".to_vec()),
                _ => args.push(random.bytes()),
            }
        }
    }
    spoil(random, &mut args);
    args
}

fn spoil(random: &mut Random, args: &mut Vec<Vec<u8>>) {
    if random.one_in(30) {
        let at = 1 + random.below(args.len());
        args.insert(at, random.bytes());
    }
    if random.one_in(30) && args.len() > 1 {
        let at = 1 + random.below(args.len() - 1);
        args[at] = random.bytes();
    }
}

/// One command of several keys, of all keys, or on a sorted set.
fn several(random: &mut Random, key: Vec<u8>, token: Vec<u8>) -> Vec<Vec<u8>> {
    let mut keys = vec![key.clone()];
    keys.extend((0..random.below(3)).map(|_| random.pick(KEYS).as_bytes().to_vec()));
    if !random.one_in(6) {
        keys.sort_unstable();
        keys.dedup();
    }
    let of = |name: &[u8]| [&[name.to_vec(), keys.len().to_string().into()][..], &keys].concat();
    let mut args = match random.below(12) {
        0..=4 => [of(b"LOCK.MACQUIRE"), vec![b"PX".to_vec(), number(random)]].concat(),
        5 | 6 => [of(b"LOCK.MRELEASE"), vec![token]].concat(),
        7 => [of(b"LOCK.MEXTEND"), vec![token, b"PX".to_vec(), number(random)]].concat(),
        8 => {
            let mut scan = vec![b"LOCK.SCAN".to_vec(), b"0".to_vec()];
            match random.below(4) {
                0 => scan.extend([b"COUNT".to_vec(), number(random)]),
                1 => scan.extend([b"STATE".to_vec(), random.pick(&["held", "EXPIRED", "foreign", "free"]).into()]),
                2 => scan.extend([b"MATCH".to_vec(), random.bytes()]),
                _ => scan[1] = number(random),
            }
            scan
        }
        9 => {
            let member = random.pick(&["1763710000482913", "1763710000482914 bob", "player"]);
            let score = random.pick(&["1763710031.5", "9999999999", "9", "inf"]);
            return vec![b"ZADD".to_vec(), key, score.into(), member.into()];
        }
        10 => return vec![b"ZPOPMAX".to_vec(), key],
        _ => return vec![b"DEL".to_vec(), key],
    };
    spoil(random, &mut args);
    args
}

fn number(random: &mut Random) -> Vec<u8> {
    // Mostly short leases, so that locks expire while the run lasts.
    if random.one_in(3) {
        random.pick(NUMBERS).into()
    } else {
        (1 + random.below(20)).to_string().into()
    }
}

/// Panics unless the reply is of a kind that the command has.
fn assert_kind(args: &[Vec<u8>], reply: &Reply) {
    let shown = || args.iter().map(|arg| show(arg)).collect::<Vec<_>>().join(" ");
    if let Reply::Error(text) = reply {
        assert!(text.starts_with("ERR ") || text.starts_with("WRONGTYPE "), "{}: {text}", shown());
        assert!(!text.contains("internal"), "{}: {text}", shown());
        return;
    }
    let good = match &args[0][..] {
        b"LOCK.ACQUIRE" => match reply {
            Reply::Nil => true,
            Reply::Int(token) => *token > 0,
            Reply::List(details) => details.len() == 4,
            _ => false,
        },
        b"LOCK.RECOVER" => reply.is_nil() || matches!(reply, Reply::List(details) if details.len() == 4),
        b"LOCK.EXTEND" => matches!(reply, Reply::Int(0 | 1)),
        b"LOCK.RELEASE" => matches!(reply, Reply::Int(-1..=1)),
        b"LOCK.CHECK" => matches!(reply, Reply::Int(0..=9_999_999_999_999)),
        b"LOCK.MACQUIRE" => matches!(reply, Reply::Nil | Reply::Int(1..)),
        b"LOCK.MEXTEND" => matches!(reply, Reply::Int(0 | 1)),
        b"LOCK.MRELEASE" => matches!(reply, Reply::Int(0..=3)),
        b"LOCK.SCAN" => matches!(reply, Reply::List(step) if step.len() == 2),
        b"LOCK.INFO" => matches!(reply, Reply::List(fields) if fields.len() == 24),
        _ => true,
    };
    assert!(good, "{}: {reply:?}", shown());
}

/// The keys and the token of a grant, if the reply is one.
fn granted<'a>(args: &'a [Vec<u8>], reply: &Reply) -> Option<(&'a [Vec<u8>], i64)> {
    match reply {
        Reply::Int(token) if args[0] == b"LOCK.ACQUIRE" => Some((&args[1..2], *token)),
        Reply::Int(token) if args[0] == b"LOCK.MACQUIRE" => {
            let count: usize = String::from_utf8_lossy(&args[1]).parse().unwrap();
            Some((&args[2..2 + count], *token))
        }
        Reply::List(details) if args[0] == b"LOCK.ACQUIRE" || args[0] == b"LOCK.RECOVER" => {
            Some((&args[1..2], details[0].int()))
        }
        _ => None,
    }
}

/// `LOCK_SEED` names another seed.
pub fn seed() -> u64 {
    std::env::var("LOCK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED)
}

#[test]
fn twenty_thousand_random_commands_leave_the_same_server_running() {
    let seed = seed();
    println!("LOCK_SEED={seed}");
    let server = Server::with().module_args(&["margin-ms", "1", "retention-ms", "500"]).start();
    let mut conn = server.conn();
    let id = run_id(&mut conn);
    let mut random = Random(seed);
    let mut given: Given = HashMap::new();
    let mut replies: HashMap<String, usize> = HashMap::new();
    for _ in 0..COMMANDS / BATCH {
        let batch: Vec<_> = (0..BATCH).map(|_| command(&mut random, &given)).collect();
        for args in &batch {
            conn.send(args);
        }
        for args in &batch {
            let reply = conn.read();
            assert_kind(args, &reply);
            if let Some((keys, token)) = granted(args, &reply) {
                assert!(token < 1 << 53);
                for key in keys {
                    let tokens = given.entry(key.clone()).or_default();
                    // The same ID gets the same token again, also that of an earlier one of several holders.
                    let is_new = tokens.insert(token);
                    assert!(!is_new || tokens.last() == Some(&token), "{}: {token} in {tokens:?}", show(key));
                }
            }
            count(&mut replies, args, &reply);
        }
    }
    assert_eq!(conn.text(&["ECHO", "in step"]), "in step");
    assert_eq!(run_id(&mut conn), id);
    assert_eq!(info(&mut conn, "server", "run_id:"), id);
    assert_all_ways_taken(&replies);
    assert_usable(&mut conn);
}

fn count(replies: &mut HashMap<String, usize>, args: &[Vec<u8>], reply: &Reply) {
    let kind = match reply {
        Reply::Int(n) if args[0].ends_with(b"RELEASE") || args[0].ends_with(b"EXTEND") => n.to_string(),
        Reply::Error(text) => text.split(' ').next().unwrap().into(),
        Reply::Nil => "nil".into(),
        _ => "value".into(),
    };
    *replies.entry(format!("{} {kind}", String::from_utf8_lossy(&args[0]))).or_default() += 1;
}

/// A run that only met errors would prove nothing.
fn assert_all_ways_taken(replies: &HashMap<String, usize>) {
    for way in [
        "LOCK.ACQUIRE value",
        "LOCK.ACQUIRE nil",
        "LOCK.ACQUIRE ERR",
        "LOCK.ACQUIRE WRONGTYPE",
        "LOCK.RECOVER value",
        "LOCK.RECOVER nil",
        "LOCK.RELEASE 1",
        "LOCK.RELEASE -1",
        "LOCK.RELEASE 0",
        "LOCK.EXTEND 1",
        "LOCK.EXTEND 0",
        "LOCK.CHECK value",
        "LOCK.INFO value",
        "LOCK.INFO WRONGTYPE",
        "LOCK.MACQUIRE value",
        "LOCK.MACQUIRE nil",
        "LOCK.MACQUIRE ERR",
        "LOCK.MACQUIRE WRONGTYPE",
        "LOCK.MEXTEND 0",
        "LOCK.MRELEASE 0",
        "LOCK.MRELEASE 1",
        "LOCK.SCAN value",
        "LOCK.SCAN ERR",
    ] {
        assert!(replies.contains_key(way), "{way} never happened: {replies:#?}");
    }
}

/// After all that, a lock is still a lock.
fn assert_usable(conn: &mut Conn) {
    let token = conn.int(&["LOCK.ACQUIRE", "after", "PX", "30000"]).to_string();
    assert!(conn.call(&["LOCK.ACQUIRE", "after", "PX", "30000"]).is_nil());
    assert_eq!(conn.int(&["LOCK.RELEASE", "after", &token]), 1);
}
