//! Drives the tokio form: a task for each order.

mod body;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use serde_json::json;
use serverlock::aio::{Held, Leader, Lock, Locks};
use serverlock::testing::aio::Server;
use serverlock::{Error, Term, Watch};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, mpsc, oneshot};

use self::body::{Own, Stopped, body, ordered};
use crate::order::{Answer, Failure, Order, cannot, flight_of, flown, granted, lock_of, ms, once_of, plain};
use crate::place::Place;
use crate::storm::{Storm, census};
use crate::threads::observed;
use crate::{answer, say};

static PLAYER: LazyLock<Player> = LazyLock::new(Player::default);
static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| Runtime::new().ok());

fn cancelled() -> Failure {
    Failure { kind: "cancelled", text: "its future was dropped".into() }
}

/// Carries out one order. Cancelling it drops its future.
pub(crate) fn player() -> fn(Order) {
    |order| {
        let n = order.get("n").clone();
        let cancel = Arc::new(Notify::new());
        locked(&PLAYER.pending).insert(n.to_string(), Arc::clone(&cancel));
        let work = async move {
            let outcome = tokio::select! {
                outcome = PLAYER.play(&order) => outcome,
                () = cancel.notified() => Err(cancelled()),
            };
            locked(&PLAYER.pending).remove(&n.to_string());
            answer(&n, outcome);
        };
        if let Some(runtime) = &*RUNTIME {
            runtime.spawn(work);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn named<T: Clone>(map: &Mutex<HashMap<String, T>>, name: &str) -> Result<T, Failure> {
    locked(map).get(name).cloned().ok_or_else(|| cannot(format!("nothing is called {name}")))
}

/// A hold, and the part of it that stays visible when it is gone.
#[derive(Clone)]
struct Known {
    held: Arc<tokio::sync::Mutex<Option<Held>>>,
    watch: Watch,
}

/// An order for the body of a scope, and the receiver of its outcome.
type Ordered = (Order, oneshot::Sender<Answer>);

#[derive(Default)]
struct Player {
    connections: Mutex<HashMap<String, Option<ConnectionManager>>>,
    locks: Mutex<HashMap<String, Locks>>,
    /// The servers in memory, by name and by manager.
    servers: Mutex<HashMap<String, Server>>,
    servers_of: Mutex<HashMap<String, Server>>,
    objects: Mutex<HashMap<String, Lock>>,
    holds: Mutex<HashMap<String, Known>>,
    scopes: Mutex<HashMap<String, (Watch, mpsc::UnboundedSender<Ordered>)>>,
    workers: Mutex<HashMap<String, mpsc::UnboundedSender<Ordered>>>,
    leaders: Mutex<HashMap<String, Leader>>,
    pending: Mutex<HashMap<String, Arc<Notify>>>,
}

impl Player {
    async fn play(&self, order: &Order) -> Answer {
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
                let connection = named(&self.connections, &order.text("manager"))?;
                let mut connection = connection.ok_or_else(|| cannot("raw"))?;
                let reply: redis::Value = order.command().query_async(&mut connection).await?;
                Ok(json!({"reply": plain(&reply)}))
            }
            "object" => {
                let lock = lock_of!(named(&self.locks, &order.text("manager"))?, order, "object");
                locked(&self.objects).insert(order.text("object"), lock);
                Ok(json!({}))
            }
            "acquire" if order.has("within") => ordered(order, &named(&self.scopes, &order.text("within"))?.1).await,
            "acquire" => {
                let held = self.lock(order, true)?.acquire().await?;
                Ok(self.keep(order, held))
            }
            "storm" => self.storm(order).await,
            "census" => {
                let managers: Vec<_> = locked(&self.locks).values().map(Locks::census).collect();
                Ok(census(managers.into_iter(), locked(&self.pending).len()))
            }
            "scope" => self.scope(order).await,
            "once" => self.once(order).await,
            "single_flight" if order.has("within") => {
                ordered(order, &named(&self.scopes, &order.text("within"))?.1).await
            }
            "single_flight" => self.single_flight(order).await,
            "leave" | "fail" | "again" | "spawn" => {
                let sender = if order.has("worker") && order.text("do") == "again" {
                    named(&self.workers, &order.text("worker"))?
                } else {
                    named(&self.scopes, &order.text("scope"))?.1
                };
                ordered(order, &sender).await
            }
            "advance" | "expire" | "lose" | "refuse" | "allow" => self.in_memory(order).await,
            "cancel" => {
                if let Some(cancel) = locked(&self.pending).get(&order.get("of").to_string()) {
                    cancel.notify_one();
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
            _ => self.with_held(order).await,
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
    async fn in_memory(&self, order: &Order) -> Answer {
        let server = named(&self.servers, &order.text("name"))?;
        match order.text("do").as_str() {
            "advance" => server.clock().advance(order.span("ms")?).await,
            "expire" => server.expire(order.key()?).await,
            "lose" => server.lose(&self.watch(order)?).await,
            "refuse" => server.refuse(order.key()?).await,
            _ => server.allow(order.key()?),
        }
        Ok(json!({}))
    }

    /// Keeps the acquired lock, if it has a name.
    fn keep(&self, order: &Order, held: Held) -> serde_json::Value {
        let ok = granted(held.token(), held.predecessor());
        if order.has("hold") {
            let watch = held.watch();
            let known = Known { held: Arc::new(tokio::sync::Mutex::new(Some(held))), watch };
            locked(&self.holds).insert(order.text("hold"), known);
        }
        ok
    }

    async fn storm(&self, order: &Order) -> Answer {
        let (locks, storm) = (named(&self.locks, &order.text("manager"))?, Arc::new(Storm::of(order)?));
        let aborts = order.text("means") == "abort";
        let attempts: Vec<_> = (0..storm.at_once)
            .map(|_| {
                let (locks, storm) = (locks.clone(), Arc::clone(&storm));
                tokio::spawn(async move {
                    while let Some((key, at)) = storm.next() {
                        let (lock, flight) = (locks.lock(&key, storm.lease), locks.single_flight(&key, storm.lease));
                        let (lock, flight, flies) = (lock.wait(storm.wait), flight.wait(storm.wait), storm.flies);
                        let attempt = async move {
                            if flies {
                                return flight.run(async |_: &Held| Ok::<_, Error>("value")).await.map(|_| ());
                            }
                            lock.run(async |_| Ok::<_, Error>(())).await
                        };
                        let outcome = if aborts {
                            let task = tokio::spawn(attempt);
                            let abort = task.abort_handle();
                            let timer = tokio::spawn(async move {
                                tokio::time::sleep_until(at.into()).await;
                                abort.abort();
                            });
                            let outcome = task.await.ok();
                            timer.abort();
                            outcome
                        } else {
                            tokio::time::timeout_at(at.into(), attempt).await.ok()
                        };
                        storm.count(outcome);
                    }
                })
            })
            .collect();
        for one in attempts {
            one.await.map_err(|error| cannot(error.to_string()))?;
        }
        Ok(storm.tally())
    }

    async fn with_held(&self, order: &Order) -> Answer {
        let known = named(&self.holds, &order.text("hold"))?;
        let mut place = known.held.lock().await;
        let gone = || cannot("code that uses a released hold does not compile");
        match order.text("do").as_str() {
            "release" => {
                let held = place.take().ok_or_else(gone)?;
                match held.release().await {
                    Err(error) if !error.is_lost() => Err(error.into()),
                    released => Ok(json!({"held": released.is_ok()})),
                }
            }
            "verify" => Ok(json!({"left_ms": ms(place.as_ref().ok_or_else(gone)?.verify().await?)})),
            "extend" => {
                let lease = order.span_or("lease_ms", Duration::from_secs(30))?;
                place.as_ref().ok_or_else(gone)?.extend(lease).await?;
                Ok(json!({}))
            }
            "fenced" => {
                let reply: redis::Value = place.as_ref().ok_or_else(gone)?.fenced(&order.command()).await?;
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
        let (connection, locks) = match Place::of(order)? {
            Place::One(client) => {
                // The locks have their own time-outs.
                let config = ConnectionManagerConfig::new().set_response_timeout(None);
                let connection = client.get_connection_manager_lazy(config)?;
                (Some(connection.clone()), Locks::with_connection(&client, connection, options))
            }
            Place::Group(servers) => (None, Locks::with_options(servers, options)),
        };
        locked(&self.connections).insert(name.clone(), connection);
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

    async fn scope(&self, order: &Order) -> Answer {
        let session = named(&self.locks, &order.text("manager"))?.session();
        let is_of_session = order.is("session") && !order.has("object");
        let lock = if is_of_session { lock_of!(session, order, "scope") } else { self.lock(order, false)? };
        let (own, (sender, mut orders)) = (Own::Lock(lock.clone(), session), mpsc::unbounded_channel());
        let done = lock.run(async |held: &Held| self.work(order, &own, held, sender, &mut orders).await).await;
        if done.is_err() && order.is("stays") {
            let _ = body(&own, &mut orders).await; // the body was dropped: its caller continues
        }
        done.map(|()| json!({}))
    }

    async fn once(&self, order: &Order) -> Answer {
        let once = once_of!(named(&self.locks, &order.text("manager"))?, order);
        if !order.has("scope") {
            let outcome = once.run(async |held| Ok::<_, Error>(format!("tick {}", held.tick()))).await?;
            return Ok(json!({"outcome": outcome.code(), "value": outcome.value()}));
        }
        let (own, (sender, mut orders)) = (Own::Once(once.clone()), mpsc::unbounded_channel());
        let outcome = once.run(async |held| self.work(order, &own, held, sender, &mut orders).await).await?;
        Ok(json!({"outcome": outcome.code()}))
    }

    async fn single_flight(&self, order: &Order) -> Answer {
        let flight = flight_of!(named(&self.locks, &order.text("manager"))?, order);
        let (value, own, (sender, mut orders)) =
            (order.value()?, Own::Flight(flight.clone()), mpsc::unbounded_channel());
        let mut computed = false;
        let compute = async |held: &Held| {
            if order.is("stays") {
                self.work_on(order, &own, held, sender, &mut orders)?;
            } else if order.has("scope") {
                self.work(order, &own, held, sender, &mut orders).await?;
            }
            computed = true;
            Ok::<_, Failure>(value)
        };
        let value = flight.run(compute).await?;
        Ok(flown(value, computed))
    }

    /// The body of a scope that continues after a loss: it awaits nothing, so it is not dropped.
    fn work_on(
        &self,
        order: &Order,
        own: &Own,
        held: &Held,
        sender: mpsc::UnboundedSender<Ordered>,
        orders: &mut mpsc::UnboundedReceiver<Ordered>,
    ) -> Result<(), Failure> {
        let name = self.enter(order, held, sender);
        let watch = held.watch();
        tokio::task::block_in_place(|| {
            Handle::current().block_on(async {
                let mut body = pin!(body(own, orders));
                tokio::select! {
                    done = &mut body => return done,
                    _ = watch.over() => say(&json!({"event": "stopped", "scope": name})),
                }
                body.await
            })
        })
    }

    /// Reports that the body of a scope begins, and returns the scope's name.
    fn enter(&self, order: &Order, held: &Held, sender: mpsc::UnboundedSender<Ordered>) -> String {
        let name = order.text("scope");
        locked(&self.scopes).insert(name.clone(), (held.watch(), sender));
        say(&json!({"event": "entered", "scope": name, "token": held.token()}));
        name
    }

    /// The body of a scope.
    async fn work(
        &self,
        order: &Order,
        own: &Own,
        held: &Held,
        sender: mpsc::UnboundedSender<Ordered>,
        orders: &mut mpsc::UnboundedReceiver<Ordered>,
    ) -> Result<(), Failure> {
        let name = self.enter(order, held, sender);
        let mut stopped = Stopped(Some(name));
        let done = body(own, orders).await;
        stopped.0 = None;
        done
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
                    tokio::spawn(async move {
                        let mut looks = leader.observe();
                        while let Some(leader) = looks.next().await {
                            observed(&observer, leader);
                        }
                    });
                } else {
                    locked(&self.leaders).insert(name.clone(), leader.clone());
                    tokio::spawn(campaign(leader, name));
                }
            }
        }
        Ok(json!({}))
    }
}

async fn campaign(leader: Leader, name: String) {
    let lead = |term: Term| {
        let name = name.clone();
        async move {
            say(&json!({"event": "elected", "leader": name, "token": term.token()}));
            term.over().await;
            say(&json!({"event": "deposed", "leader": name, "token": term.token()}));
        }
    };
    if let Err(error) = leader.run(lead).await {
        eprintln!("{error}");
    }
}
