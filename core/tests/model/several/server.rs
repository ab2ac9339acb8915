//! The driver and the engine on the fake server, as [`drive`](super::drive::drive) uses them: commands, connections
//! that end, and time, in which only the server's timer wakes a client.

use super::drive::{Driven, Told, KEYS};
use super::plain::{after, Call, Settings, Share as PlainShare, Step};
use crate::fake::{self, Blocked, Node, Place};
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::grant::Granted;
use redis_lock_core::engine::outbox::Answer;
use redis_lock_core::engine::queue::{ReplyShape, Ticket};
use redis_lock_core::engine::Limits;
use redis_lock_core::lock::error::Error;
use redis_lock_core::lock::held::Release;
use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::request::{Request, Share};
use redis_lock_core::lock::retention::Retention;
use redis_lock_core::lock::state::State;
use redis_lock_core::lock::time::{Micros, UnixMicros};
use redis_lock_core::lock::token::Token;
use std::collections::HashMap;

const START: u64 = 1_763_710_000_000_000;
/// Whoever asks without being one of the clients.
const OPERATOR: u64 = 1_000;

pub struct Server {
    node: Node,
    settings: Settings,
    steps: usize,
    /// The predecessor of a grant of a key, and since when.
    before: HashMap<(u64, u8), (Option<u64>, u64)>,
    told: Vec<(Option<usize>, Told)>,
}

fn id(number: u64) -> Id {
    Id::parse(number.to_string().as_bytes()).unwrap()
}

fn names(keys: &[u8]) -> Vec<&[u8]> {
    keys.iter().map(std::slice::from_ref).collect()
}

fn place(key: u8) -> Place {
    (0, vec![key])
}

fn ask(call: &Call) -> Ask<'static> {
    let share = match call.share {
        PlainShare::Alone => Share::Alone,
        PlainShare::Shared => Share::Shared,
        PlainShare::Limit(most) => Share::Limit(most as u64),
    };
    Ask {
        request: Request { share, lease: Micros(call.lease), id: call.id.map(id), owner: None },
        wait: Micros(if call.waits { call.wait } else { 0 }),
        shape: if call.details { ReplyShape::Details } else { ReplyShape::Token },
        session: call.session,
        notify: None,
    }
}

impl Server {
    pub fn new(settings: Settings) -> Self {
        let set = fake::Settings {
            margin: Micros(settings.margin),
            retention: settings.retention.map_or(Retention::Forever, |us| Retention::Ms(us / 1_000)),
            limits: Limits { place: Micros(settings.place), ..fake::Settings::default().limits },
            ..fake::Settings::default()
        };
        let node = Node::new(set, UnixMicros(START));
        Self { node, settings, steps: 0, before: HashMap::new(), told: Vec::new() }
    }

    fn now(&self) -> u64 {
        self.node.world.borrow().wall.0 - START
    }

    /// The clocks move on. The server looks for keys that have expired only now and then: else who opens one finds it.
    fn move_to(&self, time: u64) {
        self.node.pass(Micros(time - self.now()));
        if self.steps.is_multiple_of(2) {
            (0..KEYS).for_each(|key| self.node.expire(&place(key)));
        }
    }

    /// The event loop, until nothing is due: replies leave, and the timer fires.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            self.read_replies();
            if !self.node.fire() {
                return;
            }
        }
        panic!("the timer fires for ever");
    }

    /// The event loop until then: it comes to what is due in its moment, or at the end if the server stands still.
    fn pass(&mut self, until: u64) {
        while self.settings.runs_on {
            self.settle();
            let next = self.node.timer_at().map(|at| at.0 - START);
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.move_to(next);
            // It may come before the timer.
            self.cron();
        }
        self.move_to(until);
    }

    /// The server's cron, now and then.
    fn cron(&self) {
        if self.steps.is_multiple_of(16) {
            self.node.event(|entry| entry.tick());
        }
    }

    /// A step begins. The cron, which looks at all queues, finds nothing that the timer should have.
    fn begin(&mut self) {
        self.steps += 1;
        self.cron();
        self.settle();
        assert_eq!(self.told, [], "nobody had woken them");
        self.move_to(self.now() + self.settings.step());
    }

    fn read_replies(&mut self) {
        let clients: Vec<Blocked> = self.node.world.borrow().letters.iter().map(|(client, _)| *client).collect();
        for client in clients {
            let told = match self.node.deliver(client).unwrap() {
                Answer::Granted(grant) => {
                    self.granted(&grant.granted, grant.keys.iter(), grant.shape == ReplyShape::Details)
                }
                Answer::NotGranted(_) => Told::Nil,
                Answer::Failed(Error::Replaced) => Told::Unblocked,
                Answer::Failed(error) => panic!("{error}"),
            };
            self.told.push((Some(usize::try_from(client.0).unwrap()), told));
        }
    }

    /// A grant of these keys is reported. An attempt that asks again gets the same predecessors again, for a minute.
    fn granted<'k>(&mut self, granted: &Granted, keys: impl IntoIterator<Item = &'k [u8]>, details: bool) -> Told {
        let (token, now) = (granted.token.get(), self.now());
        let before = |at| granted.before(at).map(|before| before.token.unwrap().get());
        let mut is_first = false;
        for (at, key) in keys.into_iter().enumerate() {
            let (first, since) = *self.before.entry((token, key[0])).or_insert_with(|| {
                is_first = true;
                (before(at), now)
            });
            assert_eq!(before(at), first.filter(|_| now - since < 60_000_000), "another predecessor");
        }
        Told::Granted(token, before(0).filter(|_| is_first && details))
    }

    fn outcome(&mut self, outcome: Result<Outcome, Error>, call: &Call) -> Option<Told> {
        match outcome {
            Ok(Outcome::Granted(granted)) => Some(self.granted(&granted, names(&call.keys), call.details)),
            Ok(Outcome::NotGranted) => Some(Told::Nil),
            Ok(Outcome::Waits) => None,
            Ok(Outcome::Queued) => panic!("nobody asks for that"),
            Err(Error::Deadlock) => Some(Told::Deadlock),
            Err(Error::HeldAlone | Error::HeldAmongSeveral) => Some(Told::OtherShare),
            Err(error) => panic!("{error}"),
        }
    }

    /// The immediate reply to the caller.
    fn command(&mut self, step: &Step, token: &dyn Fn(usize) -> u64) -> Option<Told> {
        let token = |grant: usize| Token::new(token(grant)).unwrap();
        let number = |number: usize| Told::Number(i64::try_from(number).unwrap());
        Some(match step {
            Step::Acquire(call) => {
                let got = self.node.command(call.client as u64, |entry| entry.acquire(&call.keys, &ask(call)));
                return self.outcome(got, call);
            }
            Step::AcquireAll(call) => {
                let names = names(&call.keys);
                let got = self.node.command(call.client as u64, |entry| entry.acquire_all(&names, &ask(call)));
                return self.outcome(got, call);
            }
            Step::Recover { key, lease } => {
                let request = Request { share: Share::Alone, lease: Micros(*lease), id: None, owner: None };
                let ask = Ask { request, wait: Micros(0), shape: ReplyShape::Details, session: false, notify: None };
                let got = self.node.command(OPERATOR, |entry| entry.recover(&[*key], &ask)).unwrap();
                got.map_or(Told::Nil, |granted| self.granted(&granted, names(&[*key]), true))
            }
            Step::Release { keys, grant } if keys.len() == 1 => {
                match self.node.command(OPERATOR, |entry| entry.release(keys, token(*grant))).unwrap() {
                    Release::InTime => Told::Number(1),
                    Release::Late => Told::Number(-1),
                    Release::Over => Told::Number(0),
                }
            }
            Step::Release { keys, grant } => {
                number(self.node.command(OPERATOR, |entry| entry.release_all(&names(keys), token(*grant))).unwrap())
            }
            Step::Extend { keys, grant, lease } => {
                let (token, lease) = (token(*grant), Micros(*lease));
                let extended = self.node.command(OPERATOR, |entry| match keys[..] {
                    [_] => entry.extend(keys, token, lease),
                    _ => entry.extend_all(&names(keys), token, lease),
                });
                number(usize::from(extended.unwrap()))
            }
            Step::Check { key, grant } => {
                let left = self.node.command(OPERATOR, |entry| entry.check(&[*key], token(*grant))).unwrap();
                number(usize::from(left > Micros(0)))
            }
            Step::Cancel { key, id: attempt } => {
                let was_there = self.node.command(OPERATOR, |entry| entry.cancel(&[*key], id(*attempt)));
                number(usize::from(was_there.unwrap()))
            }
            Step::Delete { key } => {
                // A server deletes nothing that has expired.
                self.node.expire(&place(*key));
                let was_there = self.node.world.borrow().keys.contains_key(&place(*key));
                self.node.delete(&place(*key));
                number(usize::from(was_there))
            }
            Step::Pass { time } => {
                self.pass(after(self.now(), *time));
                return None;
            }
        })
    }

    /// The first in the queue for a key, if it wants no others besides.
    fn first_alone(&self, key: u8) -> Option<Ticket> {
        let driver = self.node.driver.borrow();
        let queues = driver.engine().queues();
        queues.awaited_queue(0, &[key]).and_then(|line| queues.single_head(line)).map(|(ticket, _)| ticket)
    }

    /// Finishes everything that is due. Returns the answers.
    fn told(&mut self) -> Vec<(Option<usize>, Told)> {
        self.settle();
        let driver = self.node.driver.borrow();
        let blocked = self.node.world.borrow().blocked.len();
        assert_eq!(blocked, driver.engine().queues().waiters(), "who waits is blocked, and nobody else");
        for counter in [Counter::MissedWakeups, Counter::LateTimers, Counter::Postponed] {
            assert_eq!(driver.engine().counters().get(counter), 0, "{counter:?}");
        }
        std::mem::take(&mut self.told)
    }
}

impl Driven for Server {
    fn step(
        &mut self,
        step: &Step,
        token: &dyn Fn(usize) -> u64,
        _expected: &[Option<usize>],
    ) -> Vec<(Option<usize>, Told)> {
        self.begin();
        let first = match step {
            Step::Release { keys, .. } if keys.len() == 1 => self.first_alone(keys[0]).map(|first| (keys[0], first)),
            Step::Cancel { key, .. } => self.first_alone(*key).map(|first| (*key, first)),
            _ => None,
        };
        let told = self.command(step, token);
        if let Some((key, _)) = first.filter(|(key, first)| self.first_alone(*key) == Some(*first)) {
            let is_there = self.node.world.borrow().keys.contains_key(&place(key));
            assert!(is_there, "it passes on in the same change, not when a timer fires: {step:?}");
        }
        self.told.extend(told.map(|told| (None, told)));
        self.told()
    }

    fn settings(&self) -> Settings {
        self.settings
    }

    fn disconnect(&mut self, client: usize) -> Vec<(Option<usize>, Told)> {
        self.begin();
        self.node.disconnect(client as u64);
        self.told()
    }

    fn content(&mut self, key: u8) -> (bool, Vec<(u64, u64)>) {
        let place = place(key);
        let is_over = |at: u64| at < (START + self.now()) / 1_000;
        let expire_at = self.node.world.borrow().keys.get(&place).and_then(|stored| stored.expire_at_ms);
        if expire_at.is_some_and(is_over) {
            return (false, Vec::new());
        }
        let own = |token: Token, timestamp: UnixMicros| (token.get(), timestamp.0 - START);
        self.node.with_lock(&place, |lock| match lock {
            State::Free => (false, Vec::new()),
            State::Held(_, Some(record)) | State::Expired(_, Some(record)) => {
                (true, vec![own(record.token, record.timestamp)])
            }
            State::Several(holders) => {
                let mut all: Vec<_> = holders.iter().map(|holder| own(holder.token, holder.timestamp)).collect();
                all.sort_unstable();
                (false, all)
            }
            other => panic!("not ours: {other:?}"),
        })
    }

    fn grain(&self) -> u64 {
        1
    }

    fn line(&mut self, key: u8) -> Vec<usize> {
        let driver = self.node.driver.borrow();
        let waiting = driver.engine().queues().waiting(0, std::slice::from_ref(&key));
        waiting.map(|waiter| usize::try_from(waiter.client().unwrap()).unwrap()).collect()
    }
}
