//! Shared by threads and tasks: mutexes that survive a panic, a signal that fires once, and the first of two futures.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
#[cfg(feature = "blocking")]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

/// A panic in a user's callback must not break other users' locks.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fires once, for any number of tasks.
#[derive(Default)]
pub(crate) struct Signal {
    is_fired: AtomicBool,
    notify: Notify,
    #[cfg(feature = "blocking")]
    acts: Mutex<Vec<(u64, Act)>>,
}

/// The action to run when a signal fires.
#[cfg(feature = "blocking")]
type Act = Arc<dyn Fn() + Send + Sync>;

impl fmt::Debug for Signal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Signal").field("is_fired", &self.is_fired()).finish_non_exhaustive()
    }
}

/// Withdraws an action when it is dropped.
#[cfg(feature = "blocking")]
pub(crate) struct Registered<'a>(&'a Signal, u64);

#[cfg(feature = "blocking")]
impl Drop for Registered<'_> {
    fn drop(&mut self) {
        locked(&self.0.acts).retain(|(number, _)| *number != self.1);
    }
}

impl Signal {
    pub(crate) fn fire(&self) {
        self.is_fired.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
        #[cfg(feature = "blocking")]
        {
            let acts: Vec<Act> = locked(&self.acts).iter().map(|(_, act)| Arc::clone(act)).collect();
            for act in acts {
                act();
            }
        }
    }

    /// Runs the action when the signal fires, or at once if it already has. For threads that cannot wait for the
    /// signal.
    #[cfg(feature = "blocking")]
    pub(crate) fn when_fired(&self, act: &Act) -> Registered<'_> {
        let number = crate::random::random();
        locked(&self.acts).push((number, Arc::clone(act)));
        if self.is_fired() {
            act();
        }
        Registered(self, number)
    }

    pub(crate) fn is_fired(&self) -> bool {
        self.is_fired.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self) {
        let mut notified = pin!(self.notify.notified());
        notified.as_mut().enable(); // before the check: nothing is missed in between
        if !self.is_fired() {
            notified.await;
        }
    }
}

/// The first of two futures, and its output.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Polls both, the left one first, until one of them is ready.
pub(crate) async fn first<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(output) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(output));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_signal_wakes_current_and_later_waiters() {
        let signal = Arc::new(Signal::default());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let signal = Arc::clone(&signal);
                tokio::spawn(async move { signal.wait().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!signal.is_fired());
        signal.fire();
        for one in waiting {
            tokio::time::timeout(Duration::from_secs(5), one).await.unwrap().unwrap();
        }
        tokio::time::timeout(Duration::from_secs(5), signal.wait()).await.unwrap();
    }

    #[cfg(feature = "blocking")]
    #[test]
    fn a_signal_runs_its_action_once_and_not_after_it_is_withdrawn() {
        let (signal, count) = (Signal::default(), Arc::new(std::sync::atomic::AtomicUsize::new(0)));
        let act: Act = {
            let count = Arc::clone(&count);
            Arc::new(move || _ = count.fetch_add(1, Ordering::SeqCst))
        };
        drop(signal.when_fired(&act));
        let registered = signal.when_fired(&act);
        signal.fire();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        drop(registered);
        drop(signal.when_fired(&act)); // the signal has fired
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn the_left_future_wins_when_both_are_ready() {
        assert!(matches!(first(async { 1 }, async { 2 }).await, First::Left(1)));
        assert!(matches!(first(std::future::pending::<()>(), async { 2 }).await, First::Right(2)));
    }
}
