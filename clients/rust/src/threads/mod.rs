//! Locks for threads: each call returns when it is done. Waits and renewals run on one thread of the crate's own.

mod calls;
mod held;
mod leader;
mod lock;
mod locks;
mod pipeline;
mod pool;
mod runtime;

pub use held::Held;
pub use leader::{Leader, Observer};
pub use lock::Lock;
pub use locks::Locks;
pub use pool::Connections;
