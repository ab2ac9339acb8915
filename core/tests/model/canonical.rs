//! A server's canonical form is the same for the same situation, however it came about, and different for every
//! situation in which something else would happen.

use crate::asks::{alone, hold, id, in_session, named, node, seconds};
use crate::fake::{Blocked, Node, Settings};
use proptest::prelude::*;
use redis_lock_core::driver::{Ask, Outcome};
use redis_lock_core::engine::counters::Counter;
use redis_lock_core::engine::queue::{Handle, ReplyShape, Waiter};
use redis_lock_core::engine::{Blocked as Refused, KeyNames, Limits};
use redis_lock_core::lock::request::{Request, Share};
use redis_lock_core::lock::time::{Micros, MonotonicMicros};
use redis_lock_core::lock::token::Token;
use std::collections::BTreeMap;

const SECOND: Micros = Micros(1_000_000);
const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

fn ask(wait: u64) -> Ask<'static> {
    alone(5, wait)
}

/// A step by somebody.
#[derive(Clone, Debug)]
enum Step {
    Acquire {
        client: u64,
        key: usize,
        id: Option<u64>,
        wait: u64,
        session: bool,
        share: Share,
    },
    AcquireAll {
        client: u64,
        keys: Vec<usize>,
        id: Option<u64>,
        wait: u64,
    },
    /// One of the grants that somebody holds.
    Release(usize),
    Cancel(usize, u64),
    Arrives(u64),
    IsLost(u64),
    Disconnect(u64),
    Delete(usize),
    Pause(bool),
    Pass(u64),
    Fire,
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let (client, key, attempt) = (1..5_u64, 0..KEYS.len(), prop::option::of(1..4_u64));
    let share = prop_oneof![3 => Just(Share::Alone), 1 => Just(Share::Limit(2))];
    prop_oneof![
        6 => (client.clone(), key.clone(), attempt.clone(), 0..4_u64, any::<bool>(), share).prop_map(
            |(client, key, id, wait, session, share)| Step::Acquire { client, key, id, wait, session, share }
        ),
        2 => (client.clone(), prop::sample::subsequence(vec![0, 1, 2], 2..=3), attempt, 0..4_u64)
            .prop_map(|(client, keys, id, wait)| Step::AcquireAll { client, keys, id, wait }),
        3 => any::<usize>().prop_map(Step::Release),
        1 => (key.clone(), 1..4_u64).prop_map(|(key, id)| Step::Cancel(key, id)),
        2 => client.clone().prop_map(Step::Arrives),
        1 => client.clone().prop_map(Step::IsLost),
        1 => client.prop_map(Step::Disconnect),
        1 => key.prop_map(Step::Delete),
        1 => any::<bool>().prop_map(Step::Pause),
        2 => (0..3_u64).prop_map(Step::Pass),
        3 => Just(Step::Fire),
        1 => Just(Step::Tick),
    ]
}

/// A server and its clients' knowledge.
struct Run {
    node: Node,
    grants: BTreeMap<Token, Vec<usize>>,
}

impl Run {
    fn new() -> Self {
        Self { node: node(), grants: BTreeMap::new() }
    }

    /// The reply to the caller.
    fn outcome(&mut self, keys: &[usize], outcome: &Result<Outcome, impl std::fmt::Debug>) -> String {
        if let Ok(Outcome::Granted(granted)) = outcome {
            self.grants.insert(granted.token, keys.to_vec());
        }
        format!("{outcome:?}")
    }

    fn do_step(&mut self, step: &Step) -> String {
        // A client that is waiting or has not read its answer makes no other request.
        let is_busy = |client: u64| {
            let world = self.node.world.borrow();
            world.blocked.contains(&Blocked(client)) || world.letters.iter().any(|(to, _)| *to == Blocked(client))
        };
        match *step {
            Step::Acquire { client, .. } | Step::AcquireAll { client, .. } if is_busy(client) => String::new(),
            Step::Acquire { client, key, id: attempt, wait, session, share } => {
                let request = Request { share, id: attempt.map(id), ..ask(wait).request };
                let ask = Ask { request, session, ..ask(wait) };
                let outcome = self.node.command(client, |entry| entry.acquire(KEYS[key], &ask));
                self.outcome(&[key], &outcome)
            }
            Step::AcquireAll { client, ref keys, id: attempt, wait } => {
                let request = Request { id: attempt.map(id), ..ask(wait).request };
                let ask = Ask { request, ..ask(wait) };
                let names: Vec<&[u8]> = keys.iter().map(|key| KEYS[*key]).collect();
                let outcome = self.node.command(client, |entry| entry.acquire_all(&names, &ask));
                self.outcome(keys, &outcome)
            }
            Step::Release(at) => {
                let Some((token, keys)) = self.grants.iter().nth(at % self.grants.len().max(1)) else {
                    return String::new();
                };
                let (token, names): (Token, Vec<&[u8]>) = (*token, keys.iter().map(|key| KEYS[*key]).collect());
                self.grants.remove(&token);
                format!("{:?}", self.node.command(9, |entry| entry.release_all(&names, token)))
            }
            Step::Cancel(key, attempt) => {
                format!("{:?}", self.node.command(9, |entry| entry.cancel(KEYS[key], id(attempt))))
            }
            Step::Arrives(client) => without_ticket(self.node.deliver(Blocked(client))),
            Step::IsLost(client) => without_ticket(self.node.lose(Blocked(client))),
            Step::Disconnect(client) => {
                let lost = without_ticket(self.node.lose(Blocked(client)));
                self.node.disconnect(client);
                lost
            }
            Step::Delete(key) => {
                self.node.delete(&(0, KEYS[key].to_vec()));
                String::new()
            }
            Step::Pause(is_paused) => {
                self.node.world.borrow_mut().is_paused = is_paused;
                String::new()
            }
            Step::Pass(time) => {
                self.node.pass(seconds(time));
                String::new()
            }
            Step::Fire => self.node.fire().to_string(),
            Step::Tick => {
                self.node.event(|entry| entry.tick());
                String::new()
            }
        }
    }

    /// Lets tickets, queues and counts come and go.
    fn noise(&self) {
        let limits = Limits { place: Micros(0), ..Settings::default().limits };
        self.node.event(|entry| {
            let clock = redis_lock_core::driver::Time::clock(entry.edge());
            let waiter = Waiter {
                handle: Handle::Blocked { handle: Blocked(77), client: 77 },
                share: Share::Alone,
                lease: SECOND,
                id: Some(id(77)),
                owner: None,
                shape: ReplyShape::Token,
                session: false,
                wants_result: false,
                since: MonotonicMicros(0),
                until: MonotonicMicros(u64::MAX),
            };
            let mut engine = entry.engine();
            engine.join(KeyNames::new(3, &[b"noise"]), Refused::default(), waiter);
            engine.left(77, limits, clock);
            engine.count(Counter::Grants);
        });
    }
}

/// An answer as text: the ticket would differ.
fn without_ticket(answer: Option<redis_lock_core::engine::outbox::Answer>) -> String {
    use redis_lock_core::engine::outbox::Answer;
    match answer {
        Some(Answer::Granted(grant)) => format!("{:?} {:?} {:?}", grant.granted, grant.keys.len(), grant.id),
        answer => format!("{answer:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn servers_with_the_same_form_behave_the_same(steps in prop::collection::vec((step(), any::<bool>()), 1..80)) {
        let (mut plain, mut noisy) = (Run::new(), Run::new());
        for (step, is_noisy) in &steps {
            if *is_noisy {
                noisy.noise();
            }
            prop_assert_eq!(plain.do_step(step), noisy.do_step(step), "{:?}", step);
            prop_assert_eq!(plain.node.canonical(), noisy.node.canonical(), "{:?}", step);
            let copy = plain.node.clone();
            prop_assert_eq!(copy.canonical(), plain.node.canonical());
        }
    }
}

/// A server on which client 1 holds the lock `a`.
fn held() -> (Node, Token) {
    let node = node();
    // Client events are on from the start.
    node.world.borrow_mut().has_client_events = true;
    let token = hold(&node, 1, b"a", &ask(0));
    (node, token)
}

fn wait(node: &Node, client: u64, ask: Ask<'_>) {
    assert!(matches!(node.command(client, |entry| entry.acquire(b"a", &ask)), Ok(Outcome::Waits)));
}

/// Passes the lock to client 2, and client 3 waits.
fn hand_over(node: &Node, token: Token) {
    wait(node, 2, ask(9));
    wait(node, 3, ask(9));
    node.command(1, |entry| entry.release(b"a", token)).unwrap();
}

/// A name, and events on a server whose lock is held, all at the same time.
type Way = (&'static str, Box<dyn Fn(&Node, Token)>);

fn way(name: &'static str, goes: impl Fn(&Node, Token) + 'static) -> Way {
    (name, Box::new(goes))
}

/// The clients that wait for it, and their requests.
fn in_queue() -> Vec<Way> {
    let shared = Ask { request: Request { share: Share::Limit(2), ..ask(9).request }, ..ask(9) };
    let longer = Ask { request: Request { lease: seconds(6), ..ask(9).request }, ..ask(9) };
    vec![
        way("nobody waits", |_, _| {}),
        way("one waits", |node, _| wait(node, 2, ask(9))),
        way("another waits", |node, _| wait(node, 3, ask(9))),
        way("both wait", |node, _| [2, 3].iter().for_each(|client| wait(node, *client, ask(9)))),
        way("both wait, the other one first", |node, _| [3, 2].iter().for_each(|client| wait(node, *client, ask(9)))),
        way("it waits for longer", |node, _| wait(node, 2, ask(10))),
        way("it wants a longer lease", move |node, _| wait(node, 2, longer)),
        way("it would share", move |node, _| wait(node, 2, shared)),
        way("it has an ID", |node, _| wait(node, 2, named(1, ask(9)))),
        way("it has another ID", |node, _| wait(node, 2, named(2, ask(9)))),
        way("its grant ends with it", |node, _| wait(node, 2, in_session(ask(9)))),
        way("it wants details", |node, _| wait(node, 2, Ask { shape: ReplyShape::Details, ..ask(9) })),
        way("it wants another lock", |node, _| {
            let waits = node.command(2, |entry| entry.acquire_all(&[b"b", b"a"], &ask(9)));
            assert!(matches!(waits, Ok(Outcome::Waits)));
        }),
    ]
}

/// How waits, grants and locks end.
fn in_the_end() -> Vec<Way> {
    vec![
        way("it has a place", |node, _| {
            wait(node, 2, named(1, ask(9)));
            node.disconnect(2);
        }),
        way("its place ends later", |node, _| {
            node.world.borrow_mut().settings.limits.place = seconds(11);
            wait(node, 2, named(1, ask(9)));
            node.disconnect(2);
        }),
        way("the lock comes free later", |node, token| {
            wait(node, 2, ask(9));
            node.command(1, |entry| entry.extend(b"a", token, seconds(7))).unwrap();
        }),
        way("the lock is extended, and nobody waits", |node, token| {
            node.command(1, |entry| entry.extend(b"a", token, seconds(7))).unwrap();
        }),
        way("the key is gone", |node, _| {
            wait(node, 2, ask(9));
            node.delete(&(0, b"a".to_vec()));
        }),
        way("that cannot be written", |node, _| {
            wait(node, 2, ask(9));
            node.delete(&(0, b"a".to_vec()));
            node.world.borrow_mut().is_paused = true;
            node.fire();
            node.world.borrow_mut().is_paused = false;
        }),
        way("the grant is on its way", |node, token| {
            hand_over(node, token);
        }),
        way("the grant is on its way, and its attempt has a place behind nobody", |node, token| {
            wait(node, 2, named(1, ask(9)));
            wait(node, 3, named(2, ask(9)));
            node.command(1, |entry| entry.release(b"a", token)).unwrap();
        }),
        way("and has arrived", |node, token| {
            hand_over(node, token);
            node.deliver(Blocked(2));
        }),
        way("and has been lost", |node, token| {
            hand_over(node, token);
            node.lose(Blocked(2));
        }),
        way("a lock ends with a connection", |node, _| {
            node.command(4, |entry| entry.acquire(b"b", &in_session(ask(0)))).unwrap();
        }),
        way("with another one", |node, _| {
            node.command(5, |entry| entry.acquire(b"b", &in_session(ask(0)))).unwrap();
        }),
        way("with none", |node, _| {
            node.command(4, |entry| entry.acquire(b"b", &ask(0))).unwrap();
        }),
        way("with one that has ended", |node, _| {
            node.command(4, |entry| entry.acquire(b"b", &in_session(ask(0)))).unwrap();
            node.disconnect(4);
        }),
    ]
}

/// The successors of a holder that never released.
fn in_succession() -> Vec<Way> {
    vec![
        way("somebody without an ID succeeded its holder", |node, _| {
            node.pass(seconds(7));
            node.command(4, |entry| entry.acquire(b"a", &ask(0))).unwrap();
        }),
        way("an attempt did, to which it is reported again", |node, _| {
            node.pass(seconds(7));
            node.command(4, |entry| entry.acquire(b"a", &named(1, ask(0)))).unwrap();
        }),
    ]
}

#[test]
fn different_servers_have_different_canonical_forms() {
    let mut forms = Vec::new();
    for (name, way) in in_queue().iter().chain(&in_the_end()).chain(&in_succession()) {
        let (node, token) = held();
        way(&node, token);
        // The keys, the blocked clients and the timer are not compared.
        let form = node.driver.borrow().engine().canonical(&[], node.world.borrow().monotonic);
        for (other, known) in &forms {
            assert_ne!(&form, known, "{name} / {other}");
        }
        forms.push((*name, form));
    }
}
