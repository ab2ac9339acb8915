//! Locks for tokio. An attempt is given up when its future is dropped, and leaves nothing behind.

mod held;
mod leader;
mod lock;
mod locks;
mod once;
mod session;
mod shared;
mod single_flight;

pub use held::Held;
pub use leader::{Leader, Observer};
pub use lock::Lock;
pub use locks::Locks;
pub use once::{HeldOnce, Once};
pub use session::Session;
pub use single_flight::SingleFlight;

/// Work that continues in the background when its caller is gone.
type Work<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
