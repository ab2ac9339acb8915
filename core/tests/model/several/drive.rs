//! Random steps for many clients, and the comparison of a server's answers with those of [`Plain`].

use super::plain::{Call, Content, Plain, Reply, Settings, Share, Step, NEVER};
use std::collections::{BTreeMap, HashMap};

/// The answer to a client: as [`Reply`], a grant by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Granted(u64, Option<u64>),
    Nil,
    Unblocked,
    Deadlock,
    OtherShare,
    Number(i64),
}

/// What is driven.
pub trait Driven {
    /// Does a step; `token` gives that of a grant. Returns the answers, each with its client, among them all `expected`
    /// ones.
    fn step(
        &mut self,
        step: &Step,
        token: &dyn Fn(usize) -> u64,
        expected: &[Option<usize>],
    ) -> Vec<(Option<usize>, Told)>;
    /// What is set.
    fn settings(&self) -> Settings {
        Settings::default()
    }
    /// The connection of a client ends; only where the settings have that. Returns the answers, each with its client.
    fn disconnect(&mut self, client: usize) -> Vec<(Option<usize>, Told)> {
        panic!("client {client} has no connection that can end")
    }
    /// The tokens in a key with what they say of their end, in grains, and whether it has one holder.
    fn content(&mut self, key: u8) -> (bool, Vec<(u64, u64)>);
    /// How exactly it tells of ends.
    fn grain(&self) -> u64 {
        UNIT
    }
    /// The clients that stand in the queue of a key, in order.
    fn line(&mut self, key: u8) -> Vec<usize>;
}

/// A small generator, so that a run can be repeated by its seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn usize_below(&mut self, most: usize) -> usize {
        usize::try_from(self.below(most as u64)).unwrap()
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

pub const KEYS: u8 = 4;
pub const CLIENTS: usize = 12;
/// Leases and steps of time are whole multiples of this; each step takes a moment besides.
pub const UNIT: u64 = 1_000_000_000;

fn any_keys(random: &mut Random) -> Vec<u8> {
    let mut keys: Vec<u8> = (0..KEYS).collect();
    for at in (1..keys.len()).rev() {
        let other = random.usize_below(at + 1);
        keys.swap(at, other);
    }
    keys.truncate(1 + random.usize_below(3));
    keys
}

fn any_key(random: &mut Random) -> u8 {
    u8::try_from(random.below(u64::from(KEYS))).unwrap()
}

/// One of four attempts. When one was cancelled, its client begins another, and few late copies of the old one arrive.
fn any_id(random: &mut Random, plain: &Plain) -> u64 {
    const ATTEMPTS: u64 = 4;
    let attempt = random.below(ATTEMPTS);
    let cancelled = plain.cancelled(attempt, ATTEMPTS);
    let is_late = cancelled > 0 && random.one_in(4);
    attempt + ATTEMPTS * (1 + cancelled - u64::from(is_late))
}

fn any_step(random: &mut Random, plain: &Plain) -> Option<Step> {
    let lease = UNIT * (1 + random.below(6));
    let call = |random: &mut Random, keys: Vec<u8>, share: Share, details: bool| {
        let client = random.usize_below(CLIENTS);
        if plain.waits(client) {
            return None;
        }
        let id = if random.one_in(3) { Some(any_id(random, plain)) } else { None };
        let waits = !random.one_in(3);
        let (wait, session) =
            if plain.settings.is_restless { (UNIT * (1 + random.below(8)), random.one_in(2)) } else { (NEVER, false) };
        Some(Call { client, keys, share, lease, waits, wait, session, id, details })
    };
    // Mostly a grant that is there.
    let grant = |random: &mut Random, key: u8| {
        let own = plain.content(key).grants();
        if own.is_empty() || random.one_in(8) {
            return None;
        }
        Some(own[random.usize_below(own.len())].number)
    };
    Some(match random.below(20) {
        0..=6 => {
            let share = match random.below(4) {
                0 => Share::Alone,
                1 => Share::Shared,
                _ => Share::Limit(1 + random.usize_below(4)),
            };
            let key = any_key(random);
            Step::Acquire(call(random, vec![key], share, true)?)
        }
        7..=9 => {
            let keys = any_keys(random);
            Step::AcquireAll(call(random, keys, Share::Alone, false)?)
        }
        10 => Step::Recover { key: any_key(random), lease },
        11..=14 => {
            let keys = if random.one_in(3) { any_keys(random) } else { vec![any_key(random)] };
            Step::Release { grant: grant(random, keys[0])?, keys }
        }
        15 => {
            let keys = if random.one_in(3) { any_keys(random) } else { vec![any_key(random)] };
            Step::Extend { grant: grant(random, keys[0])?, keys, lease }
        }
        16 => {
            let key = any_key(random);
            Step::Check { key, grant: grant(random, key)? }
        }
        17 => Step::Cancel { key: any_key(random), id: any_id(random, plain) },
        18 if random.one_in(3) => Step::Delete { key: any_key(random) },
        _ => Step::Pass { time: UNIT * (1 + random.below(3)) },
    })
}

/// How often what came about.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub grants: usize,
    pub deadlocks: usize,
    pub time_outs: usize,
    pub sessions_ended: usize,
    pub keys_expired: usize,
}

/// A step, or the end of the connection of a client.
#[derive(Clone, Debug)]
enum Turn {
    Step(Step),
    Disconnect(usize),
}

fn any_turn(random: &mut Random, plain: &Plain) -> Option<Turn> {
    if plain.settings.is_restless && random.one_in(25) {
        return Some(Turn::Disconnect(random.usize_below(CLIENTS)));
    }
    any_step(random, plain).map(Turn::Step)
}

/// Drives a server by so many random steps.
pub fn drive(driven: &mut impl Driven, seed: u64, steps: usize) -> Tally {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut plain = Plain::default();
    plain.settings = driven.settings();
    let mut tally = Tally::default();
    let mut tokens: HashMap<usize, u64> = HashMap::new();
    let mut recent = Vec::new();
    for number in 0..steps {
        let Some(step) = any_turn(&mut random, &plain) else { continue };
        recent.push(step.clone());
        if recent.len() > 30 {
            recent.remove(0);
        }
        let before = plain.clone();
        let expected = match &step {
            Turn::Step(step) => plain.step(step),
            Turn::Disconnect(client) => plain.disconnect(*client),
        };
        tally.count(&before, &plain, &step, &expected);
        let context = || {
            let Plain { now, keys, line, .. } = &before;
            format!("seed {seed}, step {number}: {step:?}\nat {now}: {keys:?}\nline: {line:?}\nearlier: {recent:?}")
        };
        let clients: Vec<Option<usize>> = expected.iter().map(|(client, _)| *client).collect();
        let told = match &step {
            Turn::Step(step) => driven.step(step, &|grant| tokens[&grant], &clients),
            Turn::Disconnect(client) => driven.disconnect(*client),
        };
        let by_client = |told: Vec<(Option<usize>, Told)>| {
            let mut all: BTreeMap<Option<usize>, Vec<Told>> = BTreeMap::new();
            for (client, told) in told {
                all.entry(client).or_default().push(told);
            }
            all
        };
        let told = by_client(told);
        // A grant is known by its token from the first reply that tells of it on.
        for (client, reply) in &expected {
            if let (Reply::Granted(grant, _), Some([Told::Granted(token, _)])) =
                (reply, told.get(client).map(Vec::as_slice))
            {
                assert!(*tokens.entry(*grant).or_insert(*token) == *token, "another token\n{}", context());
            }
        }
        let expected = expected.into_iter().map(|(client, reply)| {
            let told = match reply {
                Reply::Granted(grant, before) => {
                    Told::Granted(tokens.get(&grant).copied().unwrap_or(0), before.map(|before| tokens[&before]))
                }
                Reply::Nil => Told::Nil,
                Reply::Unblocked => Told::Unblocked,
                Reply::Deadlock => Told::Deadlock,
                Reply::OtherShare => Told::OtherShare,
                Reply::Number(number) => Told::Number(number),
            };
            (client, told)
        });
        assert_eq!(told, by_client(expected.collect()), "{}", context());
        for key in 0..KEYS {
            let content = plain.content(key);
            let mut own: Vec<_> =
                content.grants().iter().map(|grant| (tokens[&grant.number], grant.end / driven.grain())).collect();
            own.sort_unstable();
            let (is_one, found) = driven.content(key);
            assert_eq!(found, own, "key {key}, {}", context());
            assert_eq!(is_one, matches!(content, Content::One(_)), "key {key}, {}", context());
        }
        let lines: BTreeMap<u8, Vec<usize>> = (0..KEYS).map(|key| (key, driven.line(key))).collect();
        if let Err(fault) = plain.stand_as(&lines) {
            panic!("{fault}: {lines:?}, {}\nafter: {:?}", context(), plain.line);
        }
    }
    let distinct: std::collections::HashSet<u64> = tokens.values().copied().collect();
    assert_eq!(distinct.len(), tokens.len(), "each grant has a token of its own");
    tally
}

impl Tally {
    fn count(&mut self, before: &Plain, after: &Plain, turn: &Turn, told: &[(Option<usize>, Reply)]) {
        self.grants += told.iter().filter(|(_, reply)| matches!(reply, Reply::Granted(..))).count();
        self.deadlocks += told.iter().filter(|(_, reply)| *reply == Reply::Deadlock).count();
        let is_cancel = matches!(turn, Turn::Step(Step::Cancel { .. }));
        let is_time_out = |(client, reply): &&(Option<usize>, Reply)| client.is_some() && *reply == Reply::Nil;
        self.time_outs += told.iter().filter(is_time_out).count() * usize::from(!is_cancel);
        if let Turn::Disconnect(client) = turn {
            let grants = before.keys.values().flat_map(Content::grants);
            let bound = grants.filter(|grant| grant.session == Some(*client) && grant.end > before.now);
            self.sessions_ended += bound.count();
        }
        if matches!(turn, Turn::Step(Step::Pass { .. })) {
            self.keys_expired += before.keys.keys().filter(|key| !after.keys.contains_key(key)).count();
        }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.grants += other.grants;
        self.deadlocks += other.deadlocks;
        self.time_outs += other.time_outs;
        self.sessions_ended += other.sessions_ended;
        self.keys_expired += other.keys_expired;
    }
}
