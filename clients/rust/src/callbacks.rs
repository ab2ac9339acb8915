//! Calls the users' functions that losses are reported to. They may be slow, so a few threads call them, however many
//! locks are lost at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::runtime::Handle;

use crate::sync::locked;

const MOST_THREADS: usize = 2;

type Callback = Box<dyn FnOnce() + Send>;

/// The threads end when no call is left.
#[derive(Default)]
pub(crate) struct Callbacks {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Callback>,
    threads: usize,
}

impl Callbacks {
    /// Calls the function soon, in turn. If it panics, the next one is still called.
    pub(crate) fn call(self: &Arc<Self>, handle: &Handle, callback: impl FnOnce() + Send + 'static) {
        let mut state = locked(&self.state);
        state.queue.push_back(Box::new(callback));
        if state.threads >= MOST_THREADS {
            return;
        }
        state.threads = state.threads.saturating_add(1);
        drop(state);
        let (callbacks, at) = (Arc::clone(self), handle.clone());
        let work = move || {
            let _runtime = at.enter(); // so that callbacks may spawn tasks
            while let Some(callback) = callbacks.next() {
                let _ = catch_unwind(AssertUnwindSafe(callback));
            }
        };
        if thread::Builder::new().name("serverlock-lost".into()).spawn(work.clone()).is_err() {
            handle.spawn_blocking(work); // a thread of the runtime
        }
    }

    /// Whether all calls have ended.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        locked(&self.state).threads == 0
    }

    /// Returns `None` if no call is left: the thread then ends.
    fn next(&self) -> Option<Callback> {
        let mut state = locked(&self.state);
        let callback = state.queue.pop_front();
        if callback.is_none() {
            state.threads = state.threads.saturating_sub(1);
        }
        callback
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_losses_are_reported_by_few_threads_even_after_a_panic() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (callbacks, running, most) =
            (Arc::<Callbacks>::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (done, called) = mpsc::channel();
        for number in 0..300 {
            let (running, most, done) = (Arc::clone(&running), Arc::clone(&most), done.clone());
            callbacks.call(runtime.handle(), move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
                running.fetch_sub(1, Ordering::SeqCst);
                done.send(number).unwrap();
                assert_ne!(number, 7, "this one panics");
            });
        }
        let mut numbers: Vec<i32> = (0..300).map(|_| called.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), MOST_THREADS);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while locked(&callbacks.state).threads > 0 {
            assert!(std::time::Instant::now() < end, "the threads do not end");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
