//! The one thread behind all of a process's blocking locks: it waits, renews and releases. Callers run their own calls.

use std::cell::Cell;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::reach::Reach;
use crate::sync::locked;

/// How long a thread that made a call is kept for the next call.
const KEPT: Duration = Duration::from_secs(1);

/// The runtime, and the process that its thread belongs to.
static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);

thread_local! {
    static IS_CALLER: Cell<bool> = const { Cell::new(false) };
}

/// The runtime; an error if no thread can be started. A forked process gets its own, because threads are not forked.
pub(crate) fn handle() -> std::io::Result<Handle> {
    let mut runtime = locked(&RUNTIME);
    if let Some((process, runtime)) = runtime.as_ref()
        && *process == std::process::id()
    {
        return Ok(runtime.handle().clone());
    }
    let made = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("serverlock")
        .thread_keep_alive(KEPT)
        .enable_all()
        .build()?;
    let handle = made.handle().clone();
    // Dropping the parent's runtime would wait for its thread.
    std::mem::forget(runtime.replace((std::process::id(), made)));
    Ok(handle)
}

/// Whether this is a caller's thread, which may block.
pub(crate) fn is_caller() -> bool {
    IS_CALLER.get()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread. Unlike the runtime's own function, it also works within another runtime, where it
/// blocks like any blocking call.
pub(crate) fn block_on<F: Future>(reach: &Reach, future: F) -> F::Output {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IS_CALLER.set(self.0);
        }
    }
    let (_runtime, calling) = (reach.handle.enter(), reach.clock.calling());
    let _back = Back(IS_CALLER.replace(true));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match calling.poll(future.as_mut(), &mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
