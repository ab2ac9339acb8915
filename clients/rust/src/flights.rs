//! The callers of one manager that want the value of one key. They share one attempt.
//!
//! The first of them in order of arrival has the attempt, and may compute. If it leaves without a value, the next one
//! begins a new attempt.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use tokio::sync::Notify;

use crate::error::Error;
use crate::results::Bytes;
use crate::sync::locked;

/// What all callers of a flight get.
pub(crate) type Outcome = Result<Bytes, Error>;

/// The callers of one key, in order of arrival.
type Flight = BTreeMap<u64, Arc<Caller>>;

#[derive(Default)]
pub(crate) struct Flights {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_key: HashMap<Vec<u8>, Flight>,
    arrivals: u64,
}

struct Caller {
    /// The thread that computes if it is this caller's turn; `None` for a task.
    thread: Option<ThreadId>,
    outcome: Mutex<Option<Outcome>>,
    changed: Notify,
}

/// One call's place among the callers, until this is dropped.
pub(crate) struct Place {
    flights: Arc<Flights>,
    key: Vec<u8>,
    number: u64,
    caller: Arc<Caller>,
}

impl Flights {
    /// How many callers there are.
    pub(crate) fn count(&self) -> usize {
        locked(&self.state).by_key.values().map(BTreeMap::len).sum()
    }

    /// Joins the callers of the key. `None`: this thread has the attempt, so it would wait for itself.
    pub(crate) fn join(self: &Arc<Self>, key: &[u8], thread: Option<ThreadId>) -> Option<Place> {
        let mut state = locked(&self.state);
        state.arrivals = state.arrivals.saturating_add(1);
        let number = state.arrivals;
        let flight = state.by_key.entry(key.to_vec()).or_default();
        let first = flight.first_key_value();
        if thread.is_some() && first.is_some_and(|(_, first)| first.thread == thread) {
            return None;
        }
        let caller = Arc::new(Caller { thread, outcome: Mutex::default(), changed: Notify::new() });
        flight.insert(number, Arc::clone(&caller));
        drop(state);
        Some(Place { flights: Arc::clone(self), key: key.to_vec(), number, caller })
    }

    fn is_first(&self, place: &Place) -> bool {
        let state = locked(&self.state);
        let first = state.by_key.get(&place.key).and_then(Flight::first_key_value);
        first.is_some_and(|(number, _)| *number == place.number)
    }
}

impl Place {
    /// Waits for the outcome of the attempt that another caller has. `None`: it is this caller's turn to begin one.
    pub(crate) async fn turn(&self) -> Option<Outcome> {
        loop {
            if let Some(outcome) = locked(&self.caller.outcome).take() {
                return Some(outcome);
            }
            if self.flights.is_first(self) {
                return None;
            }
            self.caller.changed.notified().await;
        }
    }

    /// All callers get this. Those that come later begin a new attempt.
    pub(crate) fn land(&self, outcome: &Outcome) {
        if !self.flights.is_first(self) {
            return; // it has landed before
        }
        let Some(flight) = locked(&self.flights.state).by_key.remove(&self.key) else { return };
        for caller in flight.into_values() {
            *locked(&caller.outcome) = Some(outcome.clone());
            caller.changed.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = locked(&self.flights.state);
        let Some(flight) = state.by_key.get_mut(&self.key) else { return };
        flight.remove(&self.number);
        if let Some((_, first)) = flight.first_key_value() {
            first.changed.notify_one();
        } else {
            state.by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Kind;

    fn places(flights: &Arc<Flights>, count: usize) -> Vec<Place> {
        (0..count).map(|_| flights.join(b"a", None).unwrap()).collect()
    }

    /// What a caller gets without waiting any longer: nothing yet, its turn, or an outcome.
    async fn now(place: &Place) -> Option<Option<Outcome>> {
        tokio::time::timeout(Duration::from_millis(1), place.turn()).await.ok()
    }

    #[tokio::test]
    async fn all_callers_get_what_the_first_one_gets() {
        let flights = Arc::<Flights>::default();
        let places = places(&flights, 3);
        assert!(matches!(now(&places[0]).await, Some(None)), "its turn");
        assert!(now(&places[1]).await.is_none() && now(&places[2]).await.is_none(), "they wait");
        let other = flights.join(b"b", None).unwrap();
        assert!(matches!(now(&other).await, Some(None)), "another key");
        places[0].land(&Ok(Arc::new(b"value".to_vec())));
        let late = flights.join(b"a", None).unwrap();
        assert!(matches!(now(&late).await, Some(None)), "it came later");
        for place in &places[1..] {
            assert_eq!(*now(place).await.unwrap().unwrap().unwrap(), b"value");
        }
        places[0].land(&Err(Error::new(Kind::Refused, &"a".into(), "twice")));
        assert!(matches!(now(&late).await, Some(None)), "a caller lands only its own flight");
        drop((places, late, other));
        assert_eq!((flights.count(), locked(&flights.state).by_key.len()), (0, 0));
    }

    #[tokio::test]
    async fn the_caller_that_has_waited_longest_is_next() {
        let flights = Arc::<Flights>::default();
        let mut places = places(&flights, 4);
        drop(places.remove(2));
        assert!(now(&places[1]).await.is_none(), "the first one is still there");
        let waiting = places.remove(1);
        let next = tokio::spawn(async move { (waiting.turn().await.is_none(), waiting) });
        tokio::task::yield_now().await;
        drop(places.remove(0));
        let (is_turn, waiting) = next.await.unwrap();
        assert!(is_turn && now(&places[0]).await.is_none());
        drop(waiting);
        assert!(matches!(now(&places[0]).await, Some(None)));
        assert_eq!(flights.count(), 1);
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let flights = Arc::<Flights>::default();
        let this = Some(std::thread::current().id());
        let computing = flights.join(b"a", this).unwrap();
        assert!(flights.join(b"a", this).is_none() && flights.join(b"b", this).is_some());
        let other = Arc::clone(&flights);
        let id = std::thread::spawn(move || other.join(b"a", Some(std::thread::current().id())).is_some());
        assert!(id.join().unwrap());
        computing.land(&Ok(Arc::default()));
        assert!(flights.join(b"a", this).is_some(), "it has the value");
    }
}
