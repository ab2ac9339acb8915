//! Drives the blocking form: a thread for each order.

mod body;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use serverlock::testing::Server;
use serverlock::{Cancel, Connections, Error, Held, Leader, Lock, Locks, Watch};

use self::body::{Own, body, ordered};
use crate::order::{Answer, Failure, Order, cannot, flight_of, flown, granted, lock_of, ms, once_of, plain};
use crate::place::Place;
use crate::storm::{Storm, census};
use crate::{answer, say};

static PLAYER: LazyLock<Player> = LazyLock::new(Player::default);

/// Carries out one order.
pub(crate) fn player() -> fn(Order) {
    |order| {
        let n = order.get("n").clone();
        let cancel = Cancel::new();
        locked(&PLAYER.pending).insert(n.to_string(), cancel.clone()); // before any order to cancel it
        let work = move || {
            let outcome = PLAYER.play(&order, &cancel);
            locked(&PLAYER.pending).remove(&n.to_string());
            answer(&n, outcome);
        };
        thread::spawn(work);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn named<T: Clone>(map: &Mutex<HashMap<String, T>>, name: &str) -> Result<T, Failure> {
    locked(map).get(name).cloned().ok_or_else(|| cannot(format!("there is no {name}")))
}

/// A hold, and the part of it that stays visible when it is gone.
#[derive(Clone)]
struct Known {
    held: Arc<Mutex<Option<Held>>>,
    watch: Watch,
}

/// An order for the body of a scope, and the receiver of its outcome.
type Ordered = (Order, Sender<Answer>);

#[derive(Default)]
struct Player {
    connections: Mutex<HashMap<String, Option<Connections>>>,
    locks: Mutex<HashMap<String, Locks>>,
    /// The servers in memory, by name and by manager.
    servers: Mutex<HashMap<String, Server>>,
    servers_of: Mutex<HashMap<String, Server>>,
    objects: Mutex<HashMap<String, Lock>>,
    holds: Mutex<HashMap<String, Known>>,
    scopes: Mutex<HashMap<String, (Watch, Sender<Ordered>)>>,
    workers: Mutex<HashMap<String, Sender<Ordered>>>,
    leaders: Mutex<HashMap<String, Leader>>,
    pending: Mutex<HashMap<String, Cancel>>,
}

impl Player {
    fn play(&self, order: &Order, cancel: &Cancel) -> Answer {
        match order.text("do").as_str() {
            "open" => self.open(order),
            "close" => {
                named(&self.locks, &order.text("manager"))?.close();
                Ok(json!({}))
            }
            "raw" if locked(&self.servers_of).contains_key(&order.text("manager")) => {
                let server = named(&self.servers_of, &order.text("manager"))?;
                Ok(json!({"reply": plain(&server.call(&order.command()).map_err(cannot)?)}))
            }
            "raw" => {
                let connections = named(&self.connections, &order.text("manager"))?.ok_or_else(|| cannot("raw"))?;
                let reply: redis::Value = connections.with(|connection| order.command().query(connection))?;
                Ok(json!({"reply": plain(&reply)}))
            }
            "object" => {
                let lock = lock_of!(named(&self.locks, &order.text("manager"))?, order, "object");
                locked(&self.objects).insert(order.text("object"), lock);
                Ok(json!({}))
            }
            "acquire" | "single_flight" if order.has("within") => {
                ordered(order, &named(&self.scopes, &order.text("within"))?.1)
            }
            "acquire" => {
                let held = self.lock(order, true)?.acquire_unless(cancel)?;
                Ok(self.keep(order, held))
            }
            "storm" => self.storm(order),
            "census" => {
                let managers: Vec<_> = locked(&self.locks).values().map(Locks::census).collect();
                Ok(census(managers.into_iter(), 0))
            }
            "scope" => self.scope(order, cancel),
            "once" => self.once(order, cancel),
            "single_flight" => self.single_flight(order, cancel),
            "leave" | "fail" | "again" | "spawn" => {
                let sender = if order.has("worker") && order.text("do") == "again" {
                    named(&self.workers, &order.text("worker"))?
                } else {
                    named(&self.scopes, &order.text("scope"))?.1
                };
                ordered(order, &sender)
            }
            "advance" | "expire" | "lose" | "refuse" | "allow" => self.in_memory(order),
            "cancel" => {
                if let Some(cancel) = locked(&self.pending).get(&order.get("of").to_string()) {
                    cancel.cancel();
                }
                Ok(json!({}))
            }
            "drop" => {
                locked(&self.holds).remove(&order.text("hold"));
                Ok(json!({}))
            }
            "lead" | "resign" | "stop" | "observe" => self.lead(order),
            "check" | "left" => {
                let watch = self.watch(order)?;
                if order.text("do") == "check" {
                    watch.check()?;
                }
                Ok(json!({"left_ms": ms(watch.left())}))
            }
            _ => self.with_held(order),
        }
    }

    /// The hold or the scope of an order.
    fn watch(&self, order: &Order) -> Result<Watch, Failure> {
        if order.has("scope") {
            return Ok(named(&self.scopes, &order.text("scope"))?.0);
        }
        Ok(named(&self.holds, &order.text("hold"))?.watch)
    }

    /// An order for a server in memory.
    fn in_memory(&self, order: &Order) -> Answer {
        let server = named(&self.servers, &order.text("name"))?;
        match order.text("do").as_str() {
            "advance" => server.clock().advance(order.span("ms")?),
            "expire" => server.expire(order.key()?),
            "lose" => server.lose(&self.watch(order)?),
            "refuse" => server.refuse(order.key()?),
            _ => server.allow(order.key()?),
        }
        Ok(json!({}))
    }

    /// Keeps the acquired lock, if it has a name.
    fn keep(&self, order: &Order, held: Held) -> Value {
        let ok = granted(held.token(), held.predecessor());
        if order.has("hold") {
            let watch = held.watch();
            let known = Known { held: Arc::new(Mutex::new(Some(held))), watch };
            locked(&self.holds).insert(order.text("hold"), known);
        }
        ok
    }

    fn storm(&self, order: &Order) -> Answer {
        let (locks, storm) = (named(&self.locks, &order.text("manager"))?, Storm::of(order)?);
        let (due, is_over) = (Mutex::new(Vec::<(Instant, Cancel)>::new()), AtomicBool::new(false));
        thread::scope(|scope| {
            let cancels = scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_micros(300));
                    let now = Instant::now();
                    let (over, left) = locked(&due).drain(..).partition::<Vec<_>, _>(|(at, _)| *at <= now);
                    locked(&due).extend(left);
                    over.iter().map(|(_, cancel)| cancel).for_each(Cancel::cancel);
                }
            });
            let attempts: Vec<_> = (0..storm.at_once)
                .map(|_| {
                    scope.spawn(|| {
                        while let Some((key, at)) = storm.next() {
                            let cancel = Cancel::new();
                            locked(&due).push((at, cancel.clone()));
                            let outcome = if storm.flies {
                                let flight = locks.single_flight(key, storm.lease).wait(storm.wait);
                                flight.run_unless(&cancel, |_| Ok::<_, Error>("value")).map(|_| ())
                            } else {
                                let lock = locks.lock(key, storm.lease).wait(storm.wait);
                                lock.run_unless(&cancel, |_| Ok::<_, Error>(()))
                            };
                            storm.count(Some(outcome));
                        }
                    })
                })
                .collect();
            for one in attempts {
                let _ = one.join();
            }
            is_over.store(true, Ordering::SeqCst);
            let _ = cancels.join();
        });
        Ok(storm.tally())
    }

    fn with_held(&self, order: &Order) -> Answer {
        let known = named(&self.holds, &order.text("hold"))?;
        let mut place = locked(&known.held);
        let gone = || cannot("code that uses a released hold does not compile");
        match order.text("do").as_str() {
            "release" => {
                let held = place.take().ok_or_else(gone)?;
                match held.release() {
                    Err(error) if !error.is_lost() => Err(error.into()),
                    released => Ok(json!({"held": released.is_ok()})),
                }
            }
            "verify" => Ok(json!({"left_ms": ms(place.as_ref().ok_or_else(gone)?.verify()?)})),
            "extend" => {
                let lease = order.span_or("lease_ms", Duration::from_secs(30))?;
                place.as_ref().ok_or_else(gone)?.extend(lease)?;
                Ok(json!({}))
            }
            "fenced" => {
                let reply: redis::Value = place.as_ref().ok_or_else(gone)?.fenced(&order.command())?;
                Ok(json!({"reply": plain(&reply)}))
            }
            other => Err(cannot(other)),
        }
    }

    fn open(&self, order: &Order) -> Answer {
        let (name, options) = (order.text("manager"), order.options()?);
        if let Some(of) = order.memory() {
            let server = locked(&self.servers).entry(of).or_default().clone();
            locked(&self.locks).insert(name.clone(), server.locks_with_options(options));
            locked(&self.servers_of).insert(name, server);
            return Ok(json!({}));
        }
        let (connections, locks) = match Place::of(order)? {
            Place::One(client) => {
                let connections = Connections::new(*client);
                (Some(connections.clone()), Locks::with_options(connections, options))
            }
            Place::Group(servers) => (None, Locks::with_options(servers, options)),
        };
        locked(&self.connections).insert(name.clone(), connections);
        locked(&self.locks).insert(name, locks);
        Ok(json!({}))
    }

    fn lock(&self, order: &Order, is_hold: bool) -> Result<Lock, Failure> {
        if order.has("object") {
            return named(&self.objects, &order.text("object"));
        }
        let locks = named(&self.locks, &order.text("manager"))?;
        if is_hold {
            return Ok(lock_of!(locks, order, "hold"));
        }
        Ok(lock_of!(locks, order, "scope"))
    }

    fn scope(&self, order: &Order, cancel: &Cancel) -> Answer {
        let session = named(&self.locks, &order.text("manager"))?.session();
        let is_of_session = order.is("session") && !order.has("object");
        let lock = if is_of_session { lock_of!(session, order, "scope") } else { self.lock(order, false)? };
        lock.run_unless(cancel, |held| self.work(order, &Own::Lock(lock.clone(), session.clone()), held))?;
        Ok(json!({}))
    }

    fn once(&self, order: &Order, cancel: &Cancel) -> Answer {
        let once = once_of!(named(&self.locks, &order.text("manager"))?, order);
        if !order.has("scope") {
            let outcome = once.run_unless(cancel, |held| Ok::<_, Error>(format!("tick {}", held.tick())))?;
            return Ok(json!({"outcome": outcome.code(), "value": outcome.value()}));
        }
        let outcome = once.run_unless(cancel, |held| self.work(order, &Own::Once(once.clone()), held))?;
        Ok(json!({"outcome": outcome.code()}))
    }

    fn single_flight(&self, order: &Order, cancel: &Cancel) -> Answer {
        let flight = flight_of!(named(&self.locks, &order.text("manager"))?, order);
        let (value, mut computed) = (order.value()?, false);
        let compute = |held: &Held| {
            if order.has("scope") {
                self.work(order, &Own::Flight(flight.clone(), cancel.clone()), held)?;
            }
            computed = true;
            Ok::<_, Failure>(value)
        };
        let value = flight.run_unless(cancel, compute)?;
        Ok(flown(value, computed))
    }

    /// The body of a scope.
    fn work(&self, order: &Order, own: &Own, held: &Held) -> Result<(), Failure> {
        let (name, (sender, orders)) = (order.text("scope"), channel());
        locked(&self.scopes).insert(name.clone(), (held.watch(), sender));
        say(&json!({"event": "entered", "scope": name, "token": held.token()}));
        body(own, Some(held), &name, &orders, order.is("stays"))
    }

    fn lead(&self, order: &Order) -> Answer {
        let name = order.text("leader");
        match order.text("do").as_str() {
            "resign" => named(&self.leaders, &name)?.resign(),
            "stop" => named(&self.leaders, &name)?.stop(),
            what => {
                let locks = named(&self.locks, &order.text("manager"))?;
                let mut leader = locks.leader(order.key()?, order.span("lease_ms")?);
                if let Some(owner) = order.get("owner").as_str() {
                    leader = leader.owner(owner);
                } else if order.has("owner") {
                    leader = leader.without_owner();
                }
                if what == "observe" {
                    let observer = order.text("observer");
                    thread::spawn(move || leader.observe().for_each(|leader| observed(&observer, leader)));
                } else {
                    locked(&self.leaders).insert(name.clone(), leader.clone());
                    thread::spawn(move || campaign(&leader, &name));
                }
            }
        }
        Ok(json!({}))
    }
}

pub(crate) fn observed(observer: &str, leader: Option<serverlock::Leadership>) {
    let (token, owner) = leader.map_or((Value::Null, Value::Null), |it| (json!(it.token), json!(it.owner)));
    say(&json!({"event": "leader", "observer": observer, "token": token, "owner": owner}));
}

fn campaign(leader: &Leader, name: &str) {
    let outcome = leader.run(|term| {
        say(&json!({"event": "elected", "leader": name, "token": term.token()}));
        leader.wait(term);
        say(&json!({"event": "deposed", "leader": name, "token": term.token()}));
    });
    if let Err(error) = outcome {
        eprintln!("{error}");
    }
}
