//! Tells of losses: what users do then may take its time, so a few threads do it, however many locks are lost at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::runtime::Handle;

use crate::sync::locked;

const MOST_TELLERS: usize = 2;

type Tale = Box<dyn FnOnce() + Send>;

/// The threads end when nothing is left to be told.
#[derive(Default)]
pub(crate) struct Tellers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tales: VecDeque<Tale>,
    tellers: usize,
}

impl Tellers {
    /// In turn, and soon. A tale that panics keeps nobody from hearing the next.
    pub(crate) fn tell(self: &Arc<Self>, handle: &Handle, tale: impl FnOnce() + Send + 'static) {
        let mut state = locked(&self.state);
        state.tales.push_back(Box::new(tale));
        if state.tellers >= MOST_TELLERS {
            return;
        }
        state.tellers = state.tellers.saturating_add(1);
        drop(state);
        let (tellers, at) = (Arc::clone(self), handle.clone());
        let told = move || {
            let _runtime = at.enter(); // so that they may spawn
            while let Some(tale) = tellers.next() {
                let _ = catch_unwind(AssertUnwindSafe(tale));
            }
        };
        if thread::Builder::new().name("serverlock-lost".into()).spawn(told.clone()).is_err() {
            handle.spawn_blocking(told); // a thread that is there already
        }
    }

    /// Nothing: the teller ends.
    fn next(&self) -> Option<Tale> {
        let mut state = locked(&self.state);
        let tale = state.tales.pop_front();
        if tale.is_none() {
            state.tellers = state.tellers.saturating_sub(1);
        }
        tale
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_losses_are_told_by_few_threads_also_after_one_that_panics() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (tellers, running, most) =
            (Arc::<Tellers>::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (done, told) = mpsc::channel();
        for number in 0..300 {
            let (running, most, done) = (Arc::clone(&running), Arc::clone(&most), done.clone());
            tellers.tell(runtime.handle(), move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
                running.fetch_sub(1, Ordering::SeqCst);
                done.send(number).unwrap();
                assert_ne!(number, 7, "this one panics");
            });
        }
        let mut numbers: Vec<i32> = (0..300).map(|_| told.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), MOST_TELLERS);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while locked(&tellers.state).tellers > 0 {
            assert!(std::time::Instant::now() < end, "the tellers do not end");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
