//! A Redis and Valkey module that makes locking a native server command.
//!
//! Built as `libredis_lock.so` and loaded by a server; as a Rust library only [`lock`] is of use
//! without one. A call goes through three layers: `server` receives it, `commands` reads the
//! arguments, `lock` decides from what the key holds, the request and the time.
//!
//! - [`lock`]: the rules, pure: they know nothing of a server and take the time as an argument.
//! - [`commands`]: one file per command: its arguments, what it does, its reply.
//! - [`server`]: the edge to the server's module API, the only folder with `unsafe`.
//!
//! `docs/DESIGN.md` has the states, the invariants and what was rejected.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub use redis_lock_core::{broken, driver, engine, lock};

pub mod commands;
mod load;
pub mod server;
