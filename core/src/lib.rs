//! The lock module without a server: its rules, its state and the order of events. It is pure Rust, without `unsafe`
//! and without a clock.
//!
//! - [`lock`]: what a value in a key means, who may have the lock, and which token a grant gets.
//! - [`engine`]: what the module remembers outside the keys, and what it decides on each event.
//! - [`driver`]: the order in which things happen, on a real server or on a fake one.
//!
//! Each module depends only on those above it.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "only this project calls this crate")]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

// `fuzz/properties`, which the unit tests share, imports the core under the module's name for it.
#[cfg(test)]
extern crate self as redis_lock;

pub mod driver;
pub mod engine;
pub mod lock;
