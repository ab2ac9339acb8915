//! The fake server in an event loop like a server's: commands, then timers, then replies, until nothing is left to do.
#![allow(clippy::redundant_closure_for_method_calls, reason = "the method alone is not general enough")]

use super::clocks::Clocks;
use super::command::{name, Answers, Command, Content, Received, Seen, CONTROL};
use super::model::fake::{self, Blocked, Node, OwnedKeyName, Settings, Stored};
use super::model::steps::{Acquire, Share, KEYS};
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::engine::grant::Granted;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::queue::ReplyShape;
use redis_lock_core::engine::{KeyChange, KeyName};
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::request::{self, Request};
use redis_lock_core::lock::time::{Micros, MonotonicMicros, UnixMicros};
use redis_lock_core::lock::token::Token;

/// The time between two runs of a server's cron.
const TICK: u64 = 100_000;

/// The module's timer, as a server keeps it. The event loop checks it by a clock that is never set, and fires it if the
/// wall clock has reached its time.
#[derive(Clone, Copy, Debug)]
struct Alarm {
    number: u64,
    wall: u64,
    awake: u64,
}

pub struct Pretended {
    pub node: Node,
    clocks: Clocks,
    alarm: Option<Alarm>,
    /// When the cron runs, on the clock that stops while the machine is suspended.
    tick: u64,
    /// Open connections.
    pub conns: Vec<u64>,
    answers: Answers,
}

pub fn place(key: u8) -> OwnedKeyName {
    (0, name(key))
}

fn id_of(number: u64) -> Id {
    Id::parse(number.to_string().as_bytes()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn us(ms: u32) -> Micros {
    Micros(u64::from(ms) * 1_000)
}

fn number(value: impl TryInto<i64>) -> Received {
    Received::Number(value.try_into().unwrap_or_else(|_| panic!("a number that does not fit a reply")))
}

fn received(granted: &Granted, shape: ReplyShape) -> Received {
    match shape {
        ReplyShape::Token => number(granted.token.get()),
        ReplyShape::Details => {
            let before = granted.before(0);
            let token = before.and_then(|before| before.token).map(Token::get);
            Received::Details(granted.token.get(), before.map(|before| before.overdue_ms), token)
        }
    }
}

impl Pretended {
    pub fn new(settings: Settings, clocks: Clocks) -> Self {
        let node = Node::new(settings, UnixMicros(clocks.wall()));
        // A server's cron first runs a millisecond after the server starts.
        let tick = clocks.awake() + 1_000;
        let mut own = Self { node, clocks, alarm: None, tick, conns: Vec::new(), answers: Vec::new() };
        own.set_clocks(clocks);
        own
    }

    pub fn set_clocks(&mut self, clocks: Clocks) {
        self.clocks = clocks;
        let mut world = self.node.world.borrow_mut();
        world.wall = UnixMicros(clocks.wall());
        world.monotonic = MonotonicMicros(clocks.monotonic());
        world.suspended = Micros(clocks.asleep);
    }

    /// When the event loop next has something to do, as [`Clocks::now`].
    pub fn next_event(&self) -> u64 {
        let awake = self.alarm.map_or(self.tick, |alarm| alarm.awake.min(self.tick));
        self.clocks.now + awake.saturating_sub(self.clocks.awake())
    }

    /// When the event loop next checks the module's timer.
    pub fn next_timer(&self) -> Option<u64> {
        self.alarm.map(|alarm| self.clocks.now + alarm.awake.saturating_sub(self.clocks.awake()))
    }

    pub fn is_blocked(&self, conn: u64) -> bool {
        self.node.world.borrow().blocked.contains(&Blocked(conn))
    }

    /// A connection with a reply on its way.
    pub fn is_answered_now(&self) -> Option<u64> {
        self.node.world.borrow().letters.last().map(|(Blocked(conn), _)| *conn)
    }

    /// The replies since the last call, ordered by connection.
    pub fn answers(&mut self) -> Answers {
        let mut answers = std::mem::take(&mut self.answers);
        answers.sort();
        answers
    }

    /// Runs the event loop until it would sleep. Returns the number of iterations.
    pub fn settle(&mut self) -> usize {
        let mut iterations = 0;
        loop {
            let fired = self.run_timers();
            let delivered = self.deliver();
            self.see_alarm();
            if !fired && !delivered {
                return iterations;
            }
            iterations += 1;
            assert!(iterations < 1_000, "the timer fires forever");
        }
    }

    /// Notices a timer that has been set since.
    fn see_alarm(&mut self) {
        let timer = self.node.world.borrow().timer;
        let Some((number, at_ms)) = timer else {
            self.alarm = None;
            return;
        };
        if self.alarm.is_none_or(|alarm| alarm.number != number) {
            let delay = (at_ms - self.clocks.wall() / 1_000) * 1_000;
            self.alarm = Some(Alarm { number, wall: self.clocks.wall() + delay, awake: self.clocks.awake() + delay });
        }
    }

    fn run_timers(&mut self) -> bool {
        let mut has_run = false;
        loop {
            self.see_alarm();
            let (wall, awake) = (self.clocks.wall(), self.clocks.awake());
            let Some(alarm) = self.alarm.as_mut().filter(|alarm| alarm.awake <= awake) else { break };
            if alarm.wall > wall {
                // Whole milliseconds, rounded down, but at least one.
                alarm.awake = awake + ((alarm.wall - wall) / 1_000).max(1) * 1_000;
                break;
            }
            let fired = *alarm;
            self.node.world.borrow_mut().timer = None;
            self.node.event(|entry| entry.timer_fired());
            has_run = true;
            self.see_alarm();
            if let Some(alarm) = self.alarm.as_mut() {
                // No two timers of a server have the same time, and the fired one exists until its callback returns.
                alarm.wall += u64::from(alarm.wall == fired.wall);
                if alarm.wall > wall {
                    alarm.awake = awake + ((alarm.wall - wall) / 1_000).max(1) * 1_000;
                }
            }
        }
        if self.tick <= self.clocks.awake() {
            self.tick = self.clocks.awake() + TICK;
            self.node.event(|entry| entry.tick());
            has_run = true;
        }
        has_run
    }

    /// Sends the replies to the clients that are still connected.
    fn deliver(&mut self) -> bool {
        let letters = std::mem::take(&mut self.node.world.borrow_mut().letters);
        let has_any = !letters.is_empty();
        for (Blocked(conn), answer) in letters {
            let is_there = self.conns.contains(&conn);
            let sent = match &answer {
                Answer::Granted(grant) => received(&grant.granted, grant.shape),
                Answer::Result(result) => Received::Result(result.bytes.to_vec()),
                Answer::NotGranted(_) => Received::Nil,
                Answer::Failed(error) => Received::Error(error.to_string()),
            };
            if is_there {
                self.answers.push((conn, sent));
            }
            self.node.event(|entry| match answer {
                Answer::Granted(grant) if is_there => entry.delivered(grant.granted.token),
                Answer::Granted(grant) => entry.undelivered(grant),
                Answer::Result(_) | Answer::NotGranted(_) | Answer::Failed(_) => {}
            });
        }
        has_any
    }

    /// Executes a command as a server does.
    pub fn execute(&mut self, command: &Command) {
        let (who, answer) = match command {
            Command::Acquire { conn, command, several } => {
                let Some(answer) = self.acquire(*conn, command, *several) else { return };
                (*conn, answer)
            }
            Command::Recover { conn, key, lease, id } => {
                let id = id.map(id_of);
                let request = Request { share: request::Share::Alone, lease: us(*lease), id, owner: None };
                let ask = Ask {
                    request,
                    wait: Micros(0),
                    shape: ReplyShape::Details,
                    session: false,
                    wants_result: false,
                    notify: None,
                };
                let outcome = self.node.command(*conn, |entry| entry.recover(&name(*key), &ask));
                (*conn, outcome.map_or_else(failed, |granted| granted.map_or(Received::Nil, |it| details(&it))))
            }
            Command::Extend { token, keys, lease, several } => {
                let names = names(keys);
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                let token = Token::new(*token).unwrap();
                let outcome = self.node.command(CONTROL, |entry| {
                    if *several {
                        entry.extend_all(&names, token, us(*lease))
                    } else {
                        entry.extend(names[0], token, us(*lease))
                    }
                });
                (CONTROL, outcome.map_or_else(failed, number))
            }
            Command::Release { token, key, result } => {
                let token = Token::new(*token).unwrap();
                let result = result.map(|number| number.to_string().into_bytes());
                let result = result.as_deref();
                let outcome = self.node.command(CONTROL, |entry| entry.release_with(&name(*key), token, result));
                let number = |release| match release {
                    Release::InTime => 1,
                    Release::Late => -1,
                    Release::Over => 0,
                };
                (CONTROL, outcome.map_or_else(failed, |release| Received::Number(number(release))))
            }
            Command::ReleaseAll { token, keys } => {
                let names = names(keys);
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                let token = Token::new(*token).unwrap();
                let outcome = self.node.command(CONTROL, |entry| entry.release_all(&names, token));
                (CONTROL, outcome.map_or_else(failed, number))
            }
            Command::Check { token, key } => {
                let token = Token::new(*token).unwrap();
                let outcome = self.node.command(CONTROL, |entry| entry.check(&name(*key), token));
                (CONTROL, outcome.map_or_else(failed, |left| number(left.as_ms())))
            }
            Command::Cancel { key, id } => {
                let outcome = self.node.command(CONTROL, |entry| entry.cancel(&name(*key), id_of(*id)));
                (CONTROL, outcome.map_or_else(failed, number))
            }
            other => (CONTROL, self.do_otherwise(other)),
        };
        self.answers.push((who, answer));
    }

    /// Returns the immediate reply, if any.
    fn acquire(&mut self, conn: u64, command: &Acquire, several: bool) -> Option<Received> {
        let share = match command.share {
            Share::Alone => request::Share::Alone,
            Share::Shared => request::Share::Shared,
            Share::Limit(most) => request::Share::Limit(u64::from(most)),
        };
        let id = command.id.map(|id| id_of(u64::from(id)));
        let request = Request { share, lease: us(command.lease), id, owner: None };
        let shape = if several { ReplyShape::Token } else { ReplyShape::Details };
        let ask = Ask {
            request,
            wait: us(command.wait),
            shape,
            session: command.session,
            wants_result: command.wants_result,
            notify: None,
        };
        let names = names(&command.keys);
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        self.node.world.borrow_mut().is_transaction = command.in_transaction;
        let outcome = self.node.command(conn, |entry| {
            if several {
                entry.acquire_all(&names, &ask)
            } else {
                entry.acquire(names[0], &ask)
            }
        });
        self.node.world.borrow_mut().is_transaction = false;
        match outcome {
            Ok(Outcome::Granted(granted)) => Some(received(&granted, shape)),
            Ok(Outcome::NotGranted) => Some(Received::Nil),
            Ok(Outcome::Waits) => None,
            Ok(Outcome::Result(result)) => Some(Received::Result(result.bytes.to_vec())),
            Ok(Outcome::Queued) => panic!("no step asks for that"),
            Err(error) => Some(failed(error)),
        }
    }

    /// Commands unrelated to locks.
    fn do_otherwise(&mut self, command: &Command) -> Received {
        match command {
            Command::Kill { conn } => {
                self.conns.retain(|own| own != conn);
                self.node.disconnect(*conn);
                Received::Number(1)
            }
            Command::Unblock { conn } => {
                let is_blocked = self.is_blocked(*conn);
                if is_blocked {
                    self.node.event(|entry| entry.client_left(*conn));
                    self.answers.push((*conn, Received::Nil));
                }
                number(is_blocked)
            }
            Command::Delete { key } => {
                let has = self.stored(*key).is_some();
                self.node.delete(&place(*key));
                number(has)
            }
            Command::Put { key, value, expires_in_ms } => {
                self.stored(*key);
                let expire_at_ms = expires_in_ms.map(|ms| self.clocks.wall() / 1_000 + u64::from(ms));
                let content = fake::Content::String(value.clone());
                self.node.put(&place(*key), Some(Stored { content, expire_at_ms }));
                if expire_at_ms.is_some() {
                    // A server raises an event for the key's expiry.
                    self.node.report_key(&place(*key), KeyChange::Gone);
                }
                Received::Done
            }
            Command::Rename { from, to } => {
                let Some(stored) = self.stored(*from) else { return Received::Error("ERR no such key".into()) };
                self.stored(*to);
                self.node.put(&place(*to), Some(stored));
                self.node.put(&place(*from), None);
                self.node.report_key(&place(*from), KeyChange::Gone);
                self.node.report_key(&place(*to), KeyChange::Gone);
                Received::Done
            }
            Command::Copy { from, to } => {
                let Some(stored) = self.stored(*from) else { return Received::Number(0) };
                self.stored(*to);
                self.node.put(&place(*to), Some(stored));
                self.node.report_key(&place(*to), KeyChange::Gone);
                Received::Number(1)
            }
            Command::Flush => {
                for key in 0..KEYS {
                    self.node.put(&place(key), None);
                }
                self.node.event(|entry| entry.database_changed(Some(0)));
                Received::Done
            }
            Command::Swap => {
                let stored: Vec<Option<Stored>> = (0..KEYS).map(|key| self.stored(key)).collect();
                for (key, stored) in (0..KEYS).zip(stored.into_iter().rev()) {
                    self.node.put(&place(key), stored);
                }
                self.node.event(|entry| entry.database_changed(Some(0)));
                Received::Done
            }
            Command::Notice { key } => number(self.stored(*key).is_some()),
            other => panic!("{other:?} is a module command"),
        }
    }

    /// A key as another client reads it. The read may find that the native expiry has passed.
    fn stored(&self, key: u8) -> Option<Stored> {
        self.node.expire(&place(key));
        self.node.world.borrow().keys.get(&place(key)).cloned()
    }

    pub fn is_past_expiry(&self, key: u8) -> bool {
        self.node.is_past_expiry(&place(key))
    }

    pub fn is_set(&self, key: u8) -> bool {
        let world = self.node.world.borrow();
        world.keys.get(&place(key)).is_some_and(|stored| matches!(stored.content, fake::Content::Set(_)))
    }

    /// A key's current content.
    pub fn inspect(&self, key: u8, full: bool) -> Seen {
        let world = self.node.world.borrow();
        let stored = world.keys.get(&place(key));
        let now_ms = self.clocks.wall() / 1_000;
        let full = full.then(|| {
            let driver = self.node.driver.borrow();
            let now = world.monotonic;
            let queue = driver.engine().queues().waiting(KeyName::new(0, &name(key))).map(|waiter| {
                let (waited, left) = (now.since(waiter.since).as_ms(), waiter.until.since(now).as_ms_ceil());
                (waiter.client().unwrap_or(0), waiter.id.map(Id::get), waited, left)
            });
            let queue = queue.collect();
            let mut tokens = Vec::new();
            if let Some(fake::Content::Set(set)) = stored.map(|stored| &stored.content) {
                let token = |member: &[u8]| std::str::from_utf8(&member[..16]).unwrap().parse().unwrap();
                tokens = set.keys().map(|member| token(member)).collect();
                tokens.sort_unstable();
            }
            (queue, tokens)
        });
        let stored = stored.map(|Stored { content, expire_at_ms }| {
            let content = match content {
                fake::Content::String(bytes) => Content::String(text(bytes)),
                fake::Content::Set(set) => {
                    let mut set: Vec<_> = set.iter().map(|(member, score)| (text(member), *score)).collect();
                    set.sort();
                    Content::Set(set)
                }
            };
            (content, expire_at_ms.map(|at| at.saturating_sub(now_ms)))
        });
        Seen { stored, full }
    }
}

fn details(granted: &Granted) -> Received {
    received(granted, ReplyShape::Details)
}

#[allow(clippy::needless_pass_by_value)]
fn failed(error: Error) -> Received {
    Received::Error(error.to_string())
}

fn names(keys: &[u8]) -> Vec<Vec<u8>> {
    keys.iter().map(|key| name(*key)).collect()
}
