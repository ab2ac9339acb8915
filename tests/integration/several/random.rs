//! Random steps of all commands from many clients, on a real server whose clock the test sets, against the plain
//! account of what is promised.
//!
//! `SEVERAL_SERVER_STEPS` sets how many steps (4000).

use super::drive::{drive, Driven, Told, UNIT};
use super::plain::{Call, Share, Step};
use crate::metrics::clock::Clock;
use crate::metrics::number;
use crate::support::{server_time_us, until, Conn, Reply};
use std::collections::HashSet;
use std::thread::sleep;
use std::time::Duration;

/// The unit of the account in the time of the server: so long that the test takes less.
const UNIT_MS: u64 = 1_000_000;

struct Real {
    clock: Clock,
    control: Conn,
    clients: Vec<Conn>,
    /// The server's numbers of the clients.
    ids: Vec<i64>,
    ahead_ms: u64,
    start_us: u64,
    seen: HashSet<u64>,
    waiting: HashSet<usize>,
    /// The state of each key, read at the end of a step, and how often.
    looks: Vec<Reply>,
    times: u32,
}

fn ms(time: u64) -> String {
    (time / UNIT * UNIT_MS).to_string()
}

fn name(key: u8) -> String {
    format!("k{key}")
}

impl Real {
    fn start() -> Option<Self> {
        let args = ["margin-ms", "0", "retention-ms", "-1", "place-ms", "3600000"];
        let clock = Clock::start(&args)?;
        let mut control = clock.server.conn();
        control.ok(&["CONFIG", "SET", "hz", "500"]);
        let start_us = u64::try_from(server_time_us(&mut control)).unwrap();
        // Held for ever: who is refused here makes the module look at the clock.
        control.int(&["LOCK.ACQUIRE", "poke", "EX", "315360000"]);
        let mut clients: Vec<Conn> = (0..super::drive::CLIENTS).map(|_| clock.server.conn()).collect();
        let ids = clients.iter_mut().map(|conn| conn.int(&["CLIENT", "ID"])).collect();
        Some(Self {
            clock,
            control,
            clients,
            ids,
            ahead_ms: 0,
            start_us,
            seen: HashSet::new(),
            waiting: HashSet::new(),
            looks: Vec::new(),
            times: 0,
        })
    }

    fn told(&mut self, reply: &Reply) -> Told {
        match reply {
            Reply::Nil => Told::Nil,
            Reply::Error(text) if text.starts_with("UNBLOCKED ") => Told::Unblocked,
            Reply::Error(text) if text.starts_with("ERR id holds this lock ") => Told::OtherShare,
            Reply::Int(number) if *number > 1_000_000 => {
                let token = u64::try_from(*number).unwrap();
                self.seen.insert(token);
                Told::Granted(token, None)
            }
            Reply::Int(number) => Told::Number(*number),
            Reply::List(details) => {
                let token = u64::try_from(details[0].int()).unwrap();
                let before = if details[2].is_nil() { None } else { u64::try_from(details[2].int()).ok() };
                // Who asks again is told of its predecessor again.
                Told::Granted(token, before.filter(|_| self.seen.insert(token)))
            }
            other => panic!("an unexpected reply: {other:?}"),
        }
    }

    fn keys(keys: &[u8]) -> Vec<String> {
        std::iter::once(keys.len().to_string()).chain(keys.iter().map(|key| name(*key))).collect()
    }

    fn acquire(call: &Call, is_all: bool) -> Vec<String> {
        let mut args =
            if is_all { vec!["LOCK.MACQUIRE".into()] } else { vec!["LOCK.ACQUIRE".into(), name(call.keys[0])] };
        if is_all {
            args.extend(Self::keys(&call.keys));
        }
        args.extend(["PX".into(), ms(call.lease)]);
        match call.share {
            Share::Alone => {}
            Share::Shared => args.push("SHARED".into()),
            Share::Limit(most) => args.extend(["LIMIT".into(), most.to_string()]),
        }
        if call.waits {
            args.extend(["WAIT".into(), "3600000".into()]);
        }
        if let Some(id) = call.id {
            args.extend(["ID".into(), id.to_string()]);
        }
        if call.details {
            args.push("DETAILS".into());
        }
        args
    }

    /// Who does a step, and its command; nobody where time passes.
    fn command(&mut self, step: &Step, token: &dyn Fn(usize) -> u64) -> Option<(Option<usize>, Vec<String>)> {
        let token = |grant: usize| token(grant).to_string();
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let command = match step {
            Step::Acquire(call) => return Some((Some(call.client), Self::acquire(call, false))),
            Step::AcquireAll(call) => return Some((Some(call.client), Self::acquire(call, true))),
            Step::Recover { key, lease } => words(&["LOCK.RECOVER", &name(*key), "PX", &ms(*lease)]),
            Step::Release { keys, grant } if keys.len() == 1 => {
                words(&["LOCK.RELEASE", &name(keys[0]), &token(*grant)])
            }
            Step::Release { keys, grant } => {
                [words(&["LOCK.MRELEASE"]), Self::keys(keys), words(&[&token(*grant)])].concat()
            }
            Step::Extend { keys, grant, lease } if keys.len() == 1 => {
                words(&["LOCK.EXTEND", &name(keys[0]), &token(*grant), "PX", &ms(*lease)])
            }
            Step::Extend { keys, grant, lease } => {
                let behind = words(&[&token(*grant), "PX", &ms(*lease)]);
                [words(&["LOCK.MEXTEND"]), Self::keys(keys), behind].concat()
            }
            Step::Check { key, grant } => words(&["LOCK.CHECK", &name(*key), &token(*grant)]),
            Step::Cancel { key, id } => words(&["LOCK.CANCEL", &name(*key), &id.to_string()]),
            Step::Delete { key } => words(&["DEL", &name(*key)]),
            Step::Pass { time } => {
                self.ahead_ms += time / UNIT * UNIT_MS;
                self.clock.set_ms(i64::try_from(self.ahead_ms).unwrap());
                assert!(self.control.call(&["LOCK.ACQUIRE", "poke", "EX", "1", "ID", "9"]).is_nil());
                return None;
            }
        };
        Some((None, command))
    }
}

impl Real {
    fn look(&mut self) {
        for key in 0..super::drive::KEYS {
            self.control.send(&["LOCK.INFO", &name(key), "FULL"]);
        }
        self.looks = (0..super::drive::KEYS).map(|_| self.control.read()).collect();
        self.times += 1;
    }
}

impl Driven for Real {
    fn step(
        &mut self,
        step: &Step,
        token: &dyn Fn(usize) -> u64,
        expected: &[Option<usize>],
    ) -> Vec<(Option<usize>, Told)> {
        let mut all = Vec::new();
        let asked = self.command(step, token);
        if let Some((client, command)) = &asked {
            let conn = client.map_or(&mut self.control, |client| &mut self.clients[client]);
            conn.send(command);
        }
        for who in expected {
            // Nobody: who asked.
            let client = who.or(asked.as_ref().and_then(|(client, _)| *client));
            let conn = client.map_or(&mut self.control, |client| &mut self.clients[client]);
            let reply = conn.read();
            let told = self.told(&reply);
            let told = if matches!(step, Step::Check { .. }) { is_left(&told) } else { told };
            all.push((*who, told));
            who.map(|client| self.waiting.remove(&client));
        }
        if let Some((Some(client), _)) = asked.filter(|_| !expected.contains(&None)) {
            // Nothing is heard of a client that begins to wait.
            self.waiting.insert(client);
            let count = i64::try_from(self.waiting.len()).unwrap();
            until("it waits", || (number(&mut self.control, "waiters") == count).then_some(()));
        }
        if !self.waiting.is_empty() && !matches!(step, Step::Acquire(_) | Step::AcquireAll(_) | Step::Check { .. }) {
            // A lock that came free may be that of one who wants others besides: until the server has looked at
            // it, in its next turn, newcomers are refused. Nothing tells of that.
            sleep(Duration::from_millis(2));
        }
        self.times = 0;
        self.look();
        all
    }

    /// A clock that is set is noticed by the server's cron.
    fn look_again(&mut self) -> bool {
        sleep(Duration::from_millis(1));
        self.look();
        self.times <= 300
    }

    fn content(&mut self, key: u8) -> (bool, Vec<(u64, u64)>) {
        let look = &self.looks[usize::from(key)];
        let of = |reply: &Reply| {
            let text = reply.field("timestamp").text().replace('.', "");
            let end = (text.parse::<u64>().unwrap() - self.start_us) / 1_000 / UNIT_MS;
            (u64::try_from(reply.field("token").int()).unwrap(), end)
        };
        if look.field("state").text() == "free" {
            return (false, Vec::new());
        }
        let Reply::List(items) = look else { panic!("not a map: {look:?}") };
        if !items.contains(&Reply::Text(b"holders".to_vec())) {
            return (true, vec![of(look)]);
        }
        let mut own: Vec<_> = look.field("holders").list().iter().map(of).collect();
        own.sort_unstable();
        (false, own)
    }

    fn line(&mut self, key: u8) -> Vec<usize> {
        let queue = self.looks[usize::from(key)].field("queue");
        let number = |of: &Reply| self.ids.iter().position(|id| *id == of.field("client").int()).unwrap();
        queue.list().iter().map(number).collect()
    }
}

/// LOCK.CHECK tells how much is left; the account, whether there is something.
fn is_left(told: &Told) -> Told {
    match told {
        Told::Granted(..) => Told::Number(1),
        Told::Number(left) => Told::Number(i64::from(*left > 0)),
        other => other.clone(),
    }
}

#[test]
fn random_steps_of_many_clients_end_as_the_plain_account_says() {
    let steps = std::env::var("SEVERAL_SERVER_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(4_000);
    let Some(mut real) = Real::start() else { return };
    drive(&mut real, u64::from(std::process::id()), steps);
}
