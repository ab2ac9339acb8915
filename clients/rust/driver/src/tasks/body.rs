//! The bodies of scopes, which carry out orders.

use std::pin::Pin;
use std::time::Duration;

use serde_json::json;
use serverlock::Error;
use serverlock::aio::{Held, Lock, Once, Session, SingleFlight};
use tokio::sync::{mpsc, oneshot};

use super::{Ordered, PLAYER, cancelled, locked};
use crate::order::{Answer, Failure, Order, cannot, flown, granted, lock_of, of_work};
use crate::say;

/// Reports that a body was stopped, if this is dropped before the body has ended.
pub(super) struct Stopped(pub(super) Option<String>);

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            say(&json!({"event": "stopped", "scope": name}));
        }
    }
}

/// Gives an order to a body.
pub(super) async fn ordered(order: &Order, body: &mpsc::UnboundedSender<Ordered>) -> Answer {
    let (done, outcome) = oneshot::channel();
    body.send((order.clone(), done)).map_err(|_| cannot("the scope has ended"))?;
    outcome.await.map_err(|_| cannot("the scope has ended"))?
}

/// What a scope acquired, and can acquire again.
#[derive(Clone)]
pub(super) enum Own {
    Lock(Lock, Session),
    Once(Once),
    Flight(SingleFlight),
}

impl Own {
    async fn again(&self, order: &Order) -> Answer {
        match self {
            Self::Lock(lock, _) if order.is("nested") => {
                Ok(lock.run(async |held| Ok::<_, Error>(granted(held.token(), held.predecessor()))).await?)
            }
            Self::Lock(lock, _) => Ok(PLAYER.keep(order, lock.acquire().await?)),
            Self::Once(once) => Ok(json!({"outcome": once.run(async |_| Ok::<_, Error>(())).await?.code()})),
            Self::Flight(flight) => Ok(flown(flight.run(async |_: &Held| Ok::<_, Error>("again")).await?, true)),
        }
    }

    /// Acquires another lock, of the scope's session.
    async fn acquire(&self, order: &Order) -> Answer {
        let Self::Lock(_, session) = self else { return Err(cannot("a session in this scope")) };
        let lock = lock_of!(session, order, "hold");
        let within = order.span_or("cancel_after_ms", Duration::from_secs(3600))?;
        let held = tokio::time::timeout(within, lock.acquire()).await.map_err(|_| cancelled())??;
        Ok(PLAYER.keep(order, held))
    }
}

/// Carries out orders outside the scope in which it was started.
fn worker(own: Own, mut orders: mpsc::UnboundedReceiver<Ordered>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { _ = body(&own, &mut orders).await })
}

/// A flight in the body of a scope.
fn flying(order: Order) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
    Box::pin(async move { PLAYER.single_flight(&order).await })
}

/// The work of a scope: carries out orders.
pub(super) async fn body(own: &Own, orders: &mut mpsc::UnboundedReceiver<Ordered>) -> Result<(), Failure> {
    while let Some((order, done)) = orders.recv().await {
        let what = order.text("do");
        let outcome = match what.as_str() {
            "again" => own.again(&order).await,
            "acquire" => own.acquire(&order).await,
            "single_flight" => flying(order.clone()).await,
            "spawn" => {
                let ((sender, orders), own) = (mpsc::unbounded_channel(), own.clone());
                locked(&PLAYER.workers).insert(order.text("worker"), sender);
                tokio::spawn(worker(own, orders));
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
    Ok(())
}
