//! The module on one server and the portable lock on another, with the same clock: the same calls give the same replies
//! and leave the same values, whatever happened before.

use super::{load, Way};
use crate::wire::fixture::{Case, Fixture, Kind, Words};
use testkit::clock::Clocks;
use testkit::dice::Dice;
use testkit::{env_number, expire_at_ms, skipped, Conn, Reply, Server};

/// The clock's start: far from a whole second.
const START_US: i64 = 1_790_000_000_123_457;

/// Two servers whose clocks stand still at the same time.
struct Twins {
    _servers: [Server; 2],
    module: Conn,
    script: Conn,
    ways: Vec<Way>,
    clocks: Clocks,
    now_us: i64,
    /// The most recently granted tokens.
    tokens: Vec<i64>,
    /// Margin and retention, in ms.
    terms: [String; 2],
    /// Whether the script is called with the queue as the second key.
    is_queued: bool,
}

/// A key's value: a string, or the members of a sorted set.
fn contents(conn: &mut Conn, key: &str) -> Reply {
    if conn.text(&["TYPE", key]) == "zset" {
        conn.execute(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
    } else {
        conn.execute(&["GET", key])
    }
}

impl Twins {
    /// `None`, with a message, if the clocks cannot be moved.
    fn start(margin_ms: i64, retention_ms: i64) -> Option<Self> {
        let clocks = Clocks::new(&[0; 4])?;
        let terms = [margin_ms.to_string(), retention_ms.to_string()];
        let settings = ["margin-ms", &terms[0], "retention-ms", &terms[1]];
        let servers = [
            clocks.of(Server::with().module_args(&settings)).start(),
            clocks.of(Server::with().without_module()).start(),
        ];
        let [mut module, mut script] = [servers[0].conn(), servers[1].conn()];
        if module.version() >= (true, 8, 1) {
            skipped("the same clock for two servers", "modules on this server bypass a preloaded library's clocks");
            return None;
        }
        let ways = load(&mut script);
        module.ok(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
        let mut twins = Self {
            _servers: servers,
            module,
            script,
            ways,
            clocks,
            now_us: START_US,
            tokens: Vec::new(),
            terms,
            is_queued: false,
        };
        twins.pass(1);
        Some(twins)
    }

    /// Moves the clock.
    fn pass(&mut self, us: i64) {
        self.now_us += us;
        self.clocks.set(3, &[self.now_us]);
    }

    /// A command that both servers have: asserts the same reply.
    fn both(&mut self, args: &[String]) -> Reply {
        let replies = [self.module.execute(args), self.script.execute(args)];
        assert_eq!(replies[0], replies[1], "{args:?}");
        replies[0].clone()
    }

    /// Sends a lock command to both, compares the replies and the keys, and returns the module's reply.
    fn lock(&mut self, args: &[String], way: &Way, history: &[String]) -> Reply {
        let reply = match self.module.execute(args) {
            // Before 7.0 the server names the command as it was typed.
            Reply::Error(text) if text.contains("wrong number") => {
                Reply::Error(text.replace(&args[0], &args[0].to_lowercase()))
            }
            reply => reply,
        };
        let [margin, retention] = &self.terms;
        let words =
            if self.is_queued { way.queued_args(args, margin, retention) } else { way.args(args, margin, retention) };
        let other = self.script.execute(&words);
        let is_needed = |name: &str| matches!(&other, Reply::Error(text) if text.starts_with(&format!("ERR {name} needs the lock module")));
        assert!(
            reply == other
                || Self::is_release_with_options(args, &reply, &other)
                || ["WAIT", "SESSION", "RESULT", "SHARED", "LIMIT", "NOTIFY", "SNOTIFY"].into_iter().any(is_needed)
                || self.is_again(&reply, &other),
            "{args:?}, {way:?}: the module {reply:?}, the script {other:?}\nbefore: {history:#?}"
        );
        let key = &args[1];
        let [ours, theirs] =
            [&mut self.module, &mut self.script].map(|conn| (contents(conn, key), expire_at_ms(conn, key)));
        assert_eq!(ours, theirs, "{args:?}, {way:?}: value and expiry\nbefore: {history:#?}");
        reply
    }

    /// Only the module's LOCK.RELEASE has an option, so the script counts the arguments.
    fn is_release_with_options(args: &[String], module: &Reply, script: &Reply) -> bool {
        let both = [module, script].map(|reply| matches!(reply, Reply::Error(text) if text.starts_with("ERR ")));
        args[0].eq_ignore_ascii_case("LOCK.RELEASE") && args.len() > 3 && both == [true, true]
    }

    /// An attempt that is sent again: the module remembers its predecessor, a script only has the key.
    fn is_again(&self, module: &Reply, script: &Reply) -> bool {
        let (Reply::List(module), Reply::List(script)) = (module, script) else { return false };
        let is_old = module[0].int() < self.now_us || self.tokens.contains(&module[0].int());
        module[0] == script[0] && is_old && script[1..] == [Reply::Nil, Reply::Nil, Reply::Nil]
    }

    fn way(&self, dice: &mut Dice) -> Way {
        self.ways[dice.index(self.ways.len())].clone()
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

const KEY: &str = "k";

/// A client's next command, with tokens of current or earlier grants.
fn call(dice: &mut Dice, tokens: &[i64]) -> Vec<String> {
    let token = match dice.below(8) {
        0 => "7".to_string(),
        1 => format!("{:020}", tokens.last().unwrap_or(&1)),
        2 | 3 if !tokens.is_empty() => tokens[dice.index(tokens.len())].to_string(),
        _ => tokens.last().unwrap_or(&1).to_string(),
    };
    let lease = match dice.below(8) {
        0 => "EX 1".to_string(),
        1 => "ex 315360000".into(),
        2 => "PX 1".into(),
        3 => format!("px {}", dice.between(1, 999)),
        _ => format!("PX {}", dice.between(1_000, 40_000)),
    };
    let mut options = vec![lease];
    let name = dice.pick(&["ACQUIRE", "ACQUIRE", "ACQUIRE", "RECOVER", "EXTEND", "EXTEND", "RELEASE", "CHECK"]);
    if matches!(name, "RELEASE" | "CHECK") {
        return words(&format!("LOCK.{name} {KEY} {token}"));
    }
    if name == "EXTEND" {
        return words(&format!("LOCK.EXTEND {KEY} {token} {}", options[0]));
    }
    if dice.percent(50) {
        options.push(format!("ID {}", dice.pick(&["7", "0", "007", "9999999999999999999", "1234567890123456789"])));
    }
    if dice.percent(40) {
        options.push(format!("owner {}", dice.pick(&["alice", "host-7:pid/42", "1234567890123456789", "!~"])));
    }
    if name == "ACQUIRE" && dice.percent(40) {
        options.push("DETAILS".into());
    }
    if name == "ACQUIRE" && dice.percent(10) {
        options.push("WAIT 0".into());
    }
    let first = dice.index(options.len());
    options.rotate_left(first);
    words(&format!("LOCK.{name} {KEY} {}", options.join(" ")))
}

/// A change to the key by another lock's client. No token is ahead of the clock: the module would remember it, a script
/// cannot.
fn other(dice: &mut Dice, fixture: &Fixture, now_us: i64) -> Vec<String> {
    let at_us = now_us + i64::try_from(dice.below(40_000_000)).unwrap() - 20_000_000;
    let seconds = format!("{}.{:06}", at_us / 1_000_000, at_us % 1_000_000);
    let token = match dice.below(4) {
        0 => "9007199254740990".to_string(),
        1 => "9007199254740991".into(),
        2 => "0000000000000001".into(),
        _ => (now_us - 1_000_000).to_string(),
    };
    let value = match dice.below(10) {
        0 => return words(&format!("DEL {KEY}")),
        1 => return words(&format!("LPUSH {KEY} 1")),
        2 => return words(&format!("PERSIST {KEY}")),
        3 => (at_us / 1_000_000).to_string(),
        4 => (at_us / 1_000).to_string(),
        5 => format!("{}", at_us * 1_000 + 1),
        6 => seconds[..dice.between(12, 17).try_into().unwrap()].into(),
        7 => format!("{seconds}{token} bob"),
        8 => format!("{seconds}{token}0000000000000000007"),
        _ => {
            let foreign = &fixture.foreign.always;
            foreign[dice.index(foreign.len())].clone()
        }
    };
    let mut set = vec!["SET".to_string(), KEY.into(), value];
    if dice.percent(30) {
        set.extend(words("PX 15000"));
    }
    set
}

/// The fixture's invalid calls for one key with one holder.
fn bad_commands(twins: &mut Twins, fixture: &Fixture) -> Vec<Vec<String>> {
    let case = Case::start(&mut twins.module, KEY, "7", false);
    let calls = fixture.error.values().flatten().map(|words: &Words| case.args(words));
    let own = ["LOCK.ACQUIRE", "LOCK.RECOVER", "LOCK.EXTEND", "LOCK.RELEASE", "LOCK.CHECK"];
    calls.filter(|args| own.contains(&&*args[0]) && args.get(1).is_some_and(|key| key == KEY)).collect()
}

/// Random commands on a lock with these terms.
fn run(margin_ms: i64, retention_ms: i64, seed: u64, steps: u64) {
    run_in(margin_ms, retention_ms, seed, steps, false);
}

/// Like `run`; with the queue as the second key there can be several holders.
fn run_in(margin_ms: i64, retention_ms: i64, seed: u64, steps: u64, is_queued: bool) {
    let Some(mut twins) = Twins::start(margin_ms, retention_ms) else { return };
    twins.is_queued = is_queued;
    let (fixture, mut dice) = (Fixture::load(), Dice::new(seed));
    let (mut history, mut granted) = (Vec::new(), 0);
    let errors = bad_commands(&mut twins, &fixture);
    for step in 0..steps {
        twins.pass(match dice.below(10) {
            0 => 1,
            1 => i64::try_from(dice.below(90_000_000)).unwrap() + 1,
            2 => 1_000_000 - twins.now_us % 1_000_000,
            _ => i64::try_from(dice.below(4_000_000)).unwrap() + 1,
        });
        if dice.one_in(6) {
            let args = other(&mut dice, &fixture, twins.now_us);
            if is_queued && args[0] == "PERSIST" {
                // The module notices a missing expiry the next time a set is written, the script at each write.
                continue;
            }
            // LPUSH fails on a string, so the key is deleted first.
            if args[0] == "LPUSH" {
                twins.both(&words(&format!("DEL {KEY}")));
            }
            twins.both(&args);
            history.push(format!("{step}: {args:?}"));
            continue;
        }
        let way = twins.way(&mut dice);
        let mut args =
            if dice.one_in(12) { errors[dice.index(errors.len())].clone() } else { call(&mut dice, &twins.tokens) };
        if is_queued && args[0] == "LOCK.ACQUIRE" && dice.percent(75) {
            args.extend(words(dice.pick(&["SHARED", "LIMIT 1", "limit 2", "LIMIT 3", "LIMIT 4096"])));
        }
        let from = history.len().saturating_sub(6);
        let reply = twins.lock(&args, &way, &history[from..]);
        history.push(format!("{step}, {}: {args:?} {reply:?}", twins.now_us));
        let token = match &reply {
            Reply::Int(token) if *token > 1_000_000 => Some(*token),
            Reply::List(details) => Some(details[0].int()),
            _ => None,
        };
        if let Some(token) = token.filter(|_| args[0] != "LOCK.CHECK") {
            granted += 1;
            twins.tokens.push(token);
            twins.tokens.drain(..twins.tokens.len().saturating_sub(4));
        }
    }
    assert!(granted > steps / 12, "only {granted} grants in {steps} steps");
}

/// How many steps each test takes, and the seed; `DIFFERENTIAL_STEPS` and `DIFFERENTIAL_SEED` set them.
fn steps() -> (u64, u64) {
    (env_number("DIFFERENTIAL_STEPS").unwrap_or(1_500), env_number("DIFFERENTIAL_SEED").unwrap_or(24))
}

#[test]
fn random_commands_agree_with_default_settings() {
    let (steps, seed) = steps();
    run(1_000, 60_000, seed, steps);
}

#[test]
fn random_commands_agree_without_margin_and_retention() {
    let (steps, seed) = steps();
    run(0, 0, seed + 1, steps);
}

#[test]
fn random_commands_agree_with_endless_retention() {
    let (steps, seed) = steps();
    run(3_333, -1, seed + 2, steps);
}

#[test]
fn random_commands_agree_with_several_holders() {
    let (steps, seed) = steps();
    run_in(1_000, 60_000, seed + 3, steps, true);
    run_in(0, 0, seed + 4, steps / 2, true);
    run_in(3_333, -1, seed + 5, steps / 2, true);
}

#[test]
fn numbers_of_every_form_mean_the_same() {
    let Some(mut twins) = Twins::start(1_000, 60_000) else { return };
    let fixture = Fixture::load();
    for number in
        fixture.number.iter().filter(|number| matches!(number.kind, Kind::Lease | Kind::Token | Kind::Id | Kind::Owner))
    {
        for n in &number.accepted {
            for words in number.commands.iter().filter(|words| words.words()[0] != "LOCK.CANCEL") {
                for way in twins.ways.clone() {
                    twins.pass(1_000_001);
                    let mut case = Case::start(&mut twins.module, KEY, "{us-5000000}", false);
                    case.n.clone_from(n);
                    let args = case.args(words);
                    if args[0].starts_with("LOCK.M") || args[1] != KEY {
                        continue;
                    }
                    let end = (twins.now_us / 1_000_000) + if args[0] == "LOCK.RECOVER" { -9 } else { 9 };
                    let token: u64 =
                        if number.kind == Kind::Token { n.parse().unwrap() } else { case.token.parse().unwrap() };
                    twins.both(&["SET".into(), KEY.into(), format!("{end}.000000{token:016}")]);
                    twins.lock(&args, &way, &[]);
                }
            }
        }
    }
}

#[test]
fn a_server_without_a_clock_grants_nothing() {
    let clock = "CLOCK the server's clock is before 2001-09-09 or after 2250: no lock is granted";
    // In range: the first and the last microsecond at which a lock is granted.
    for (now_us, grants) in [
        (86_400_000_000, false),
        (999_999_999_999_999, false),
        (1_000_000_000_000_000, true),
        (8_835_955_199_999_999, true),
        (8_835_955_200_000_000, false),
    ] {
        let held = format!("{:010}.000000{:016} alice", now_us / 1_000_000 + 9, 42);
        for way in 0..2 {
            // The module's tokens grow from one grant to the next.
            let Some(mut twins) = Twins::start(1_000, 60_000) else { return };
            let Some(way) = twins.ways.get(way).cloned() else { continue };
            twins.now_us = now_us;
            twins.pass(0);
            let granted = twins.lock(&words("LOCK.ACQUIRE k PX 315360000000"), &way, &[]);
            assert_eq!(granted, if grants { Reply::Int(now_us) } else { Reply::Error(clock.into()) });
            for (command, expected) in [
                ("LOCK.ACQUIRE k PX 1000", Reply::Nil),
                ("LOCK.RECOVER k PX 1000", Reply::Nil),
                ("LOCK.EXTEND k 42 PX 315360000000", if grants { Reply::Int(1) } else { Reply::Error(clock.into()) }),
                ("LOCK.RELEASE k 42", Reply::Int(1)),
            ] {
                twins.both(&["SET".into(), KEY.into(), held.clone()]);
                assert_eq!(twins.lock(&words(command), &way, &[]), expected, "{command} at {now_us}");
            }
        }
    }
}

#[test]
fn timestamps_of_all_forms_pass_in_the_same_microsecond() {
    let Some(mut twins) = Twins::start(1_000, 60_000) else { return };
    let fixture = Fixture::load();
    // As long as a number may be, and longer.
    let long = |length: usize| format!("1790000031.{:0<1$}", 5, length - 11);
    let others = fixture.others.iter().map(|(text, us)| (text.clone(), *us));
    let ours = fixture.ours.iter().map(|case| (case.text.clone(), case.timestamp_us));
    for (text, timestamp_us) in others.chain(ours).chain([(long(128), 1_790_000_031_500_000), (long(129), i64::MAX)]) {
        // Before the last second at which a lock is granted.
        if timestamp_us > 8_835_955_100_000_000 && timestamp_us < i64::MAX {
            continue;
        }
        for way in twins.ways.clone() {
            for (now_us, is_over) in [(timestamp_us - 1, false), (timestamp_us, true)] {
                twins.now_us = if timestamp_us == i64::MAX { START_US + 60_000_000 } else { now_us };
                twins.pass(0);
                twins.both(&["SET".into(), KEY.into(), text.clone()]);
                let acquire = ["LOCK.ACQUIRE", KEY, "PX", "1000"];
                let other = twins.script.execute(&way.usual(&acquire));
                assert_eq!(!other.is_nil(), is_over && timestamp_us < i64::MAX, "{text} at {}", twins.now_us);
                assert_eq!(other.is_nil(), twins.module.execute(&acquire).is_nil(), "{text} at {}", twins.now_us);
            }
        }
    }
}

#[test]
fn tokens_grow_by_one_when_the_clock_does_not() {
    let Some(mut twins) = Twins::start(1_000, 60_000) else { return };
    for way in twins.ways.clone() {
        for (ahead, expected) in [(-1, 0), (0, 1), (1, 2), (999_999, 1_000_000)] {
            twins.pass(5_000_000);
            let (now_us, token) = (twins.now_us, twins.now_us + ahead);
            twins.both(&["SET".into(), KEY.into(), format!("1763710031.000000{token}")]);
            let reply = twins.lock(&words("LOCK.ACQUIRE k PX 1000"), &way, &[]);
            assert_eq!(reply, Reply::Int(now_us + expected), "{ahead}");
        }
    }
}
