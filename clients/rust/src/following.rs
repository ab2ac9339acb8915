//! Lets a clock that a test moves know which work is in progress. On the system's clock, this does nothing.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::clock::{Clock, Time};
use crate::sync::locked;

/// Work in progress, until this is dropped.
pub(crate) struct Work(Option<Arc<dyn Time>>);

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(time) = &self.0 {
            time.end();
        }
    }
}

/// A future that is in progress from the moment that it is woken until it waits again. At first, it is in progress.
pub(crate) struct Following(Option<Arc<Follower>>);

struct Follower {
    time: Arc<dyn Time>,
    /// Whether a caller awaits it.
    is_call: bool,
    state: Mutex<State>,
}

struct State {
    /// Since it was woken.
    woken: Option<Work>,
    is_over: bool,
    waker: Option<Waker>,
}

impl Clock {
    pub(crate) fn work(&self) -> Work {
        Work(self.moved().inspect(|time| time.begin()))
    }

    /// Follows a task.
    pub(crate) fn following(&self) -> Following {
        self.follower(false)
    }

    /// Follows a call, which the application awaits.
    pub(crate) fn calling(&self) -> Following {
        self.follower(true)
    }

    fn follower(&self, is_call: bool) -> Following {
        Following(self.moved().map(|time| {
            let state = State { woken: Some(self.work()), is_over: false, waker: None };
            Arc::new(Follower { time, is_call, state: Mutex::new(state) })
        }))
    }

    /// The same future, followed.
    pub(crate) fn followed<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let following = self.following();
        async move {
            let mut work = pin!(work);
            std::future::poll_fn(|context| following.poll(work.as_mut(), context)).await
        }
    }
}

impl Following {
    pub(crate) fn poll<F: Future + ?Sized>(&self, work: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(follower) = &self.0 else { return work.poll(context) };
        let _polled = follower.begin(context.waker());
        let done = work.poll(&mut Context::from_waker(&Waker::from(Arc::clone(follower))));
        if done.is_ready() {
            follower.finish();
            if follower.is_call {
                follower.time.returned();
            }
        }
        done
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(follower) = &self.0 {
            follower.finish();
        }
    }
}

impl Follower {
    /// Begins a poll. From now on, it may be woken again.
    fn begin(&self, waker: &Waker) -> Work {
        self.time.begin();
        let mut state = locked(&self.state);
        let before = (state.waker.replace(waker.clone()), state.woken.take());
        drop(state);
        drop(before);
        Work(Some(Arc::clone(&self.time)))
    }

    fn finish(&self) {
        let mut state = locked(&self.state);
        state.is_over = true;
        let last = (state.waker.take(), state.woken.take());
        drop(state);
        drop(last);
    }
}

impl Wake for Follower {
    fn wake(self: Arc<Self>) {
        let mut state = locked(&self.state);
        if state.is_over {
            return;
        }
        if state.woken.is_none() {
            self.time.begin();
            state.woken = Some(Work(Some(Arc::clone(&self.time))));
        }
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
