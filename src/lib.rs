//! A Redis and Valkey module that makes locking a native server command.
//!
//! Built as `libredis_lock.so` and loaded by a server. What is decided, and in which order, is in the crate
//! `redis_lock_core`, which needs no server; this crate gives it one. Each knows only those to its right:
//! `load -> commands -> server -> driver -> engine -> lock`.
//!
//! - [`commands`]: one file per command: its arguments, one question to the driver, its reply.
//! - [`server`]: the edge to the server's module API, the only folder with `unsafe`.
//! - [`driver`], [`engine`], [`lock`]: the order of events, what is remembered, the rules.
//!
//! `docs/DESIGN.md` has the states, the invariants and what was rejected.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub use redis_lock_core::{driver, engine, lock};

pub mod commands;
mod load;
pub mod server;
