//! A Redis and Valkey module that makes locking a native server command.
//!
//! It is built as `libredis_lock.so` and loaded by a server. The `redis_lock_core` crate decides everything and needs
//! no server; this crate connects it to one. Each layer depends only on those to its right: `load -> commands -> server
//! -> driver -> engine -> lock`.
//!
//! - [`commands`]: one file per command, with its arguments, one call to the driver, and its reply.
//! - `server`: the edge to the server's module API, and the only folder with `unsafe`.
//! - [`driver`], [`engine`], [`lock`]: the order of events, the module's memory, the rules.
//!
//! `docs/DESIGN.md` describes the states, the invariants and the rejected designs.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]
#![allow(missing_docs, reason = "only tests and fuzzers of this project call this crate")]

pub use redis_lock_core::{driver, engine, lock};
pub use server::entries::Command;

pub mod commands;
mod load;
mod server;
