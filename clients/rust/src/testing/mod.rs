//! A lock server in memory, for the tests of an application (feature `testing`, for `dev-dependencies`).
//!
//! The code under test gets a manager of a [`Server`], for threads, or of an [`aio::Server`], for tokio. It cannot tell
//! it from one of production: only the connections and the clock are different. Time stands still until the test moves
//! it.
//!
//! ```
//! use std::time::Duration;
//!
//! use serverlock::testing::Server;
//!
//! # fn main() -> Result<(), serverlock::Error> {
//! let server = Server::new();
//! let (locks, other) = (server.locks(), server.locks()); // like the managers of two processes
//!
//! let held = locks.lock("report", Duration::from_secs(30)).acquire()?;
//! server.clock().advance(Duration::from_secs(3600)); // the lock is renewed, and so on
//! held.check()?;
//! server.lose(&held.watch()); // as if it had been taken away: `on_lost` is called
//! assert!(held.check().is_err_and(|error| error.is_lost()));
//!
//! server.refuse("report"); // until `server.allow("report")`
//! let refused = other.lock("report", Duration::from_secs(30)).wait(Duration::from_secs(60)).acquire();
//! assert_eq!(refused.unwrap_err().code(), "unavailable");
//! # Ok(())
//! # }
//! ```
//!
//! The server has the module's rules and default settings: the margin is 1 s. Each test should have its own server. The
//! server does not detect deadlocks, and has neither replicas nor disks nor scripts: `replicas`, `fsync` and `fenced`
//! fail as [`Unavailable`](crate::Kind::Unavailable).

#[cfg(feature = "tokio")]
pub mod aio;
mod commands;
mod core;
mod lock;
mod memory;
#[cfg(feature = "blocking")]
mod server;
mod settle;
mod time;
mod wire;

#[cfg(feature = "blocking")]
pub use server::{Clock, Server};
