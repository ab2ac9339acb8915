//! The bodies of scopes, which carry out orders.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::json;
use serverlock::{Cancel, Error, Held, Lock, Once, Session, SingleFlight};

use super::{Ordered, PLAYER, locked};
use crate::order::{Answer, Failure, Order, cannot, flown, granted, lock_of, of_work};
use crate::say;

/// Gives an order to a body.
pub(super) fn ordered(order: &Order, body: &Sender<Ordered>) -> Answer {
    let (done, outcome) = channel();
    body.send((order.clone(), done)).map_err(|_| cannot("the scope has ended"))?;
    outcome.recv().map_err(|_| cannot("the scope has ended"))?
}

/// What a scope acquired, and can acquire again.
#[derive(Clone)]
pub(super) enum Own {
    Lock(Lock, Session),
    Once(Once),
    /// With what cancels its caller.
    Flight(SingleFlight, Cancel),
}

impl Own {
    fn again(&self, order: &Order) -> Answer {
        match self {
            Self::Lock(lock, _) if order.is("nested") => {
                Ok(lock.run(|held| Ok::<_, Error>(granted(held.token(), held.predecessor())))?)
            }
            Self::Lock(lock, _) => Ok(PLAYER.keep(order, lock.acquire()?)),
            Self::Once(once) => Ok(json!({"outcome": once.run(|_| Ok::<_, Error>(()))?.code()})),
            Self::Flight(flight, _) => Ok(flown(flight.run(|_| Ok::<_, Error>("again"))?, true)),
        }
    }

    /// Acquires another lock, of the scope's session.
    fn acquire(&self, order: &Order) -> Answer {
        let Self::Lock(_, session) = self else { return Err(cannot("a session in this scope")) };
        let (lock, cancel) = (lock_of!(session, order, "hold"), Cancel::new());
        if order.has("cancel_after_ms") {
            let (cancel, after) = (cancel.clone(), order.span("cancel_after_ms")?);
            thread::spawn(move || {
                thread::sleep(after);
                cancel.cancel();
            });
        }
        Ok(PLAYER.keep(order, lock.acquire_unless(&cancel)?))
    }
}

/// The work of a scope: carries out orders until the lock is lost.
pub(super) fn body(
    own: &Own,
    held: Option<&Held>,
    name: &str,
    orders: &Receiver<Ordered>,
    stays: bool,
) -> Result<(), Failure> {
    let mut has_stopped = false;
    loop {
        if let Some(Err(lost)) = held.filter(|_| !has_stopped).map(Held::check) {
            say(&json!({"event": "stopped", "scope": name}));
            has_stopped = true;
            if !stays {
                return Err(lost.into());
            }
        }
        if matches!(own, Own::Flight(_, cancel) if cancel.is_cancelled()) {
            say(&json!({"event": "stopped", "scope": name}));
            return Err(Failure { kind: "cancelled", text: "its caller was cancelled".into() });
        }
        let (order, done) = match orders.recv_timeout(Duration::from_millis(10)) {
            Ok(orders) => orders,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let what = order.text("do");
        let outcome = match what.as_str() {
            "again" => own.again(&order),
            "acquire" => own.acquire(&order),
            "single_flight" => PLAYER.single_flight(&order, &Cancel::new()),
            "spawn" => {
                let ((sender, orders), own) = (channel(), own.clone());
                locked(&PLAYER.workers).insert(order.text("worker"), sender);
                thread::spawn(move || body(&own, None, "", &orders, false));
                Ok(json!({}))
            }
            _ => Ok(json!({})),
        };
        let _ = done.send(outcome);
        match what.as_str() {
            "leave" => return Ok(()),
            "fail" => return Err(of_work()),
            _ => {}
        }
    }
}
