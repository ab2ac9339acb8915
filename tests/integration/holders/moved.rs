//! Sets of holders whose keys are renamed, moved, copied, swapped and restored, and changed by hand: the module never
//! uses the memory of another set. The key itself is the reference.

use crate::kinds::{acquire, Row};
use std::collections::{BTreeMap, BTreeSet};
use testkit::dice::Dice;
use testkit::{server_time_us, Conn, Reply, Server};

type Steps = &'static [&'static [&'static str]];

/// How a key gets a different name, and its old one back.
const WAYS: [(&str, Steps, Steps); 4] = [
    ("RENAME", &[&["RENAME", "k", "x"]], &[&["RENAME", "x", "k"]]),
    ("COPY", &[&["COPY", "k", "x"], &["DEL", "k"]], &[&["COPY", "x", "k"], &["DEL", "x"]]),
    (
        "SWAPDB",
        &[&["SWAPDB", "0", "1"], &["SELECT", "1"], &["RENAME", "k", "x"]],
        &[&["RENAME", "x", "k"], &["SWAPDB", "0", "1"], &["SELECT", "0"]],
    ),
    (
        "MOVE",
        &[&["MOVE", "k", "1"], &["SELECT", "1"], &["RENAME", "k", "x"]],
        &[&["RENAME", "x", "k"], &["MOVE", "k", "0"], &["SELECT", "0"]],
    ),
];

#[test]
fn a_set_that_changed_under_another_name_is_read_anew() {
    let server = Server::start();
    let mut conn = server.conn();
    for (way, there, back) in WAYS {
        let _row = Row::of(way);
        let share = |conn: &mut Conn, key| acquire(conn, &[key, "EX", "60", "SHARED"]);
        let released = share(&mut conn, "k");
        let stays = share(&mut conn, "k");
        let last = acquire(&mut conn, &["k", "EX", "600", "SHARED"]);
        assert!(conn.int(&["LOCK.CHECK", "k", &released]) > 0);
        for step in there {
            conn.execute(step);
        }
        assert_eq!(conn.int(&["LOCK.RELEASE", "x", &released]), 1);
        let new = share(&mut conn, "x");
        for step in back {
            conn.execute(step);
        }
        for holder in [&new, &stays, &last] {
            assert!(conn.int(&["LOCK.CHECK", "k", holder]) > 0, "the holder still holds it");
        }
        assert_eq!(conn.int(&["LOCK.CHECK", "k", &released]), 0, "it was released");
        assert!(conn.execute(&["LOCK.ACQUIRE", "k", "EX", "60", "LIMIT", "3"]).is_nil(), "three hold it");
        assert_eq!(conn.int(&["LOCK.EXTEND", "k", &new, "EX", "70"]), 1);
        assert_eq!(conn.int(&["LOCK.RELEASE", "k", &released]), 0);
        assert_eq!(conn.int(&["ZCARD", "k"]), 3);
        conn.ok(&["FLUSHALL"]);
    }
}

const KEYS: [&str; 2] = ["a", "b"];

/// Compares the module's report for each grant with the key.
struct Account {
    conn: Conn,
    dice: Dice,
    /// Every holder so far, with its member in the set.
    tokens: BTreeSet<String>,
    dumps: BTreeMap<String, Vec<u8>>,
}

impl Account {
    fn below(&mut self, most: usize) -> usize {
        self.dice.index(most)
    }

    fn any<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let at = self.below(of.len().max(1));
        of.get(at).cloned()
    }

    /// The holders described by the key's members, and the ends of their leases.
    fn holders(&mut self, key: &str) -> BTreeMap<String, i64> {
        let members = self.conn.execute(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
        #[allow(clippy::cast_possible_truncation)] // A time in microseconds.
        let us = |score: &Reply| -> i64 { (score.text().parse::<f64>().unwrap() * 1e6).round() as i64 };
        members.list().chunks(2).map(|pair| (pair[0].text()[..16].to_string(), us(&pair[1]))).collect()
    }

    /// Asserts that a grant is held only if the key says so; with `exactly`, also that it is whenever the key says so.
    fn compare(&mut self, exactly: bool, what: &str) {
        for key in KEYS {
            let holders = self.holders(key);
            for token in self.tokens.clone() {
                let left_ms = self.conn.int(&["LOCK.CHECK", key, &token]);
                let now = server_time_us(&mut self.conn);
                let end = holders.get(&token).map_or(0, |end| end - now);
                // Leases are in seconds: within 500 ms of an end both answers are right.
                assert!(
                    left_ms == 0 || (left_ms * 1_000 - end).abs() < 500_000,
                    "{what}: {key} {token} {left_ms} {end}"
                );
                assert!(!exactly || left_ms > 0 || end < 500_000, "{what}: {key} {token} is held for {end}");
            }
        }
    }

    /// A module command on any key.
    fn lock(&mut self) -> Vec<String> {
        let key = self.any(&KEYS).unwrap();
        self.lock_key(key)
    }

    fn lock_key(&mut self, key: &str) -> Vec<String> {
        let known: Vec<String> = self.holders(key).into_keys().collect();
        let lease = (10 + self.below(10) * 10).to_string();
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let call = match (self.below(8), self.any(&known)) {
            (0..=1, Some(token)) => words(&["LOCK.RELEASE", key, &token]),
            (3, Some(token)) => words(&["LOCK.EXTEND", key, &token, "EX", &lease]),
            (4, _) => words(&["LOCK.ACQUIRE", key, "EX", &lease, "LIMIT", "4"]),
            _ => words(&["LOCK.ACQUIRE", key, "EX", &lease, "SHARED"]),
        };
        // More than a few holders would hide an error in their number.
        let call = if known.len() > 5 { words(&["LOCK.RELEASE", key, &self.any(&known).unwrap()]) } else { call };
        if let Reply::Int(token @ 1_000_000..) = self.conn.execute(&call) {
            self.tokens.insert(token.to_string());
        }
        call
    }

    /// A whole key moves elsewhere, and may return changed.
    fn move_one(&mut self) -> Vec<String> {
        let (from, to) = (self.any(&KEYS).unwrap(), self.any(&KEYS).unwrap());
        if self.below(2) == 0 {
            let mut steps = vec![format!("RENAME {from} elsewhere")];
            self.conn.execute(&["RENAME", from, "elsewhere"]);
            for _ in 0..=self.below(4) {
                steps.push(self.lock_key("elsewhere").join(" "));
            }
            steps.push(format!("RENAME elsewhere {to}"));
            self.conn.execute(&["RENAME", "elsewhere", to]);
            return vec![steps.join(", ")];
        }
        let call: &[&str] = match self.below(16) {
            0 => &["DEL", from],
            1 => &["MOVE", from, "1"],
            2 => &["SWAPDB", "0", "1"],
            _ => &["RENAME", from, to],
        };
        self.conn.execute(call);
        call.iter().map(ToString::to_string).collect()
    }

    /// A copy appears, an earlier version comes back, or a plain command changes the set.
    fn disturb(&mut self) -> Vec<String> {
        let (from, to) = (self.any(&KEYS).unwrap(), self.any(&KEYS).unwrap());
        let members: Vec<String> =
            self.conn.execute(&["ZRANGE", from, "0", "-1"]).list().iter().map(Reply::text).collect();
        let all: Vec<String> = self.tokens.iter().cloned().collect();
        let until =
            format!("{}", server_time_us(&mut self.conn) / 1_000_000 + 10 + i64::try_from(self.below(20)).unwrap());
        let call: Vec<String> = match (self.below(5), self.any(&members), self.any(&all)) {
            (0, Some(member), _) => vec!["ZREM".into(), from.into(), member],
            (1, Some(member), _) => vec!["ZADD".into(), from.into(), until, member],
            (2, _, Some(token)) => vec!["ZADD".into(), from.into(), until, token],
            (3, ..) => {
                if let Reply::Text(dump) = self.conn.execute(&["DUMP", from]) {
                    if let Some(earlier) = self.dumps.insert(from.into(), dump) {
                        let restore: [&[u8]; 5] = [b"RESTORE", to.as_bytes(), b"0", &earlier, b"REPLACE"];
                        assert_eq!(self.conn.execute(&restore), Reply::Status("OK".into()));
                    }
                }
                return vec!["RESTORE".into(), from.into(), to.into()];
            }
            _ => vec!["COPY".into(), from.into(), to.into(), "REPLACE".into()],
        };
        self.conn.execute(&call);
        call
    }
}

/// Runs the steps of each seed. `step` executes one, and returns its description and whether to compare now.
fn play(count: usize, mut step: impl FnMut(&mut Account) -> (Vec<String>, bool), compare: impl Fn(&mut Account, &str)) {
    let server = Server::with().module_args(&["margin-ms", "0"]).start();
    for seed in 1..=20_u64 {
        let dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut account = Account { conn: server.conn(), dice, tokens: BTreeSet::new(), dumps: BTreeMap::new() };
        account.conn.ok(&["FLUSHALL"]);
        let mut steps = Vec::new();
        for _ in 0..count {
            let (what, is_time) = step(&mut account);
            steps.push(what.join(" "));
            if is_time {
                compare(&mut account, &format!("seed {seed}: {steps:?}"));
            }
        }
    }
}

#[test]
fn replies_match_the_key_however_it_moves() {
    let step = |account: &mut Account| {
        let what = if account.below(3) == 0 { account.move_one() } else { account.lock() };
        (what, account.below(8) == 0)
    };
    play(150, step, |account, what| account.compare(true, what));
}

#[test]
fn foreign_writes_to_a_set_are_noticed() {
    let step = |account: &mut Account| {
        let what = match account.below(4) {
            0 => account.move_one(),
            1 => account.disturb(),
            _ => account.lock(),
        };
        (what, account.below(4) == 0)
    };
    play(100, step, |account, what| {
        account.compare(false, what);
        // Every fourth of these commands makes the module check one more of the key's holders.
        for key in KEYS {
            for _ in 0..4 * account.holders(key).len() {
                account.conn.int(&["LOCK.CHECK", key, "1"]);
            }
        }
        account.compare(true, what);
    });
}
