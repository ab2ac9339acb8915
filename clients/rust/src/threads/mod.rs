//! Locks for threads: each call returns when it is done. Waits and renewals run on the crate's own thread.

mod calls;
mod held;
mod leader;
mod lock;
mod locks;
mod once;
mod pipeline;
mod pool;
mod runtime;
mod session;
mod single_flight;

pub use held::Held;
pub use leader::{Leader, Observer};
pub use lock::Lock;
pub use locks::Locks;
pub use once::{HeldOnce, Once};
pub use pool::Connections;
pub use session::Session;
pub use single_flight::SingleFlight;
