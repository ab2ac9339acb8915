//! State that only the server's main thread touches.

use std::cell::RefCell;

/// A cell that is a static and is used by the main thread alone.
pub struct MainThread<T>(RefCell<T>);

// SAFETY: the server calls the module's commands and callbacks on its main thread only, and the
// module starts no thread.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    /// A cell with a first value.
    pub const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// Lends the value to `body`; `None` if it is lent already, which is a fault of the module.
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_borrow_mut().ok().map(|mut value| body(&mut value))
    }
}
