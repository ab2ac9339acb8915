//! Distributed locks for Redis and Valkey: waiters queue in the server, each grant has a fencing token, and a new
//! holder can tell if its predecessor crashed.
//!
//! [`Locks`] is for threads, [`aio::Locks`] (feature `tokio`) for tokio. Create one for each Redis client in the
//! application.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = serverlock::Locks::new(redis::Client::open("redis://localhost")?);
//! let report = locks.lock("report", Duration::from_secs(30)).wait(Duration::from_secs(60));
//! let held = report.acquire()?; // dropping it releases the lock
//! println!("working, token {}", held.token()); // pass the token to the storage with each write
//! for _ in 0..3 {
//!     held.check()?; // before each step: fails unless the lock is certain to be held
//! }
//! held.release()?; // an error unless the lock was held to the end
//! # Ok(())
//! # }
//! ```
//!
//! A `Lock` is a description: it holds nothing, and any number of threads may use it. Each acquisition returns its own
//! `Held`, which cannot be copied. The lease is renewed while the lock is held. Whatever the network does, the holder
//! considers the lock lost a tenth of the lease plus the server's margin (1 s) before anyone else can get it.
//!
//! With the redis-lock module, the server hands each lock to the next waiter. Without it, the same calls use a script,
//! which notifies the next waiter, so locks are still granted in order of arrival. `session` needs the module, and
//! `all_of` polls without it. `shared`, `limit` and `all_of` need it for keys with a brace but no hash tag.
//!
//! [`Locks::once`] is for cron jobs: of all processes that call it for one tick of a period, one runs the body.
//! [`Locks::single_flight`] is for values that many callers need at the same moment: one of them computes the value.
//! [`Locks::session`] is for callers that hold several locks at a time: the server finds deadlocks among them.
//!
//! All errors are of type [`Error`], which has a [`Kind`] and names the lock.
//!
//! | feature | effect |
//! |---|---|
//! | `blocking` (default) | [`Locks`]. Waits and renewals run on the crate's own thread, which runs tokio |
//! | `tokio` | [`aio::Locks`] |
//! | `sentinel` | a `redis::sentinel::SentinelClient` instead of a `redis::Client` |
//! | `tls-rustls`, `tls-native-tls` | TLS, like the redis crate's features of the same names |
//! | `testing` | [`testing`]: a lock server in memory, for the tests of an application |

#[cfg(not(any(feature = "blocking", feature = "tokio")))]
compile_error!("serverlock needs the feature `blocking`, `tokio`, or both");

#[cfg(feature = "tokio")]
pub mod aio;
mod attempt;
mod blocking;
mod callbacks;
mod clock;
mod command;
mod connection;
mod connections;
mod copy;
mod debts;
mod engine;
mod error;
mod failures;
mod flights;
mod following;
mod held;
mod hold;
mod keep;
mod label;
mod leader;
mod meanwhile;
mod once;
#[cfg(feature = "opentelemetry")]
pub mod opentelemetry;
mod options;
mod portable;
mod random;
mod reach;
mod release;
mod renewal;
mod replicas;
mod request;
mod resources;
mod results;
mod route;
mod scopes;
mod server_clock;
mod sessions;
mod single_flight;
mod slot;
mod subscription;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "blocking")]
mod threads;
mod ticks;
mod wait;
mod watch;
mod watching;

pub use error::{Error, Kind};
pub use held::{Cancel, Watch};
pub use hold::Predecessor;
pub use leader::{Leadership, Term};
pub use once::Outcome;
pub use options::{Hooks, Options};
pub use route::Servers;
#[cfg(feature = "blocking")]
pub use threads::{Connections, Held, HeldOnce, Leader, Lock, Locks, Observer, Once, Session, SingleFlight};
pub use watch::{AttemptWatch, End};
