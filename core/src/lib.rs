//! What the lock module decides and in which order, without a server: pure Rust, no `unsafe`, no clock of its own.
//!
//! - [`lock`]: values and rules. What a value in a key means, who may have the lock, which token a grant gets.
//! - [`engine`]: what is remembered besides the keys, and what each event comes to.
//! - [`driver`]: in which order things happen, on a server or on a fake of one.
//!
//! Each knows only those above it.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

// `fuzz/properties`, which unit tests feed too, calls the core by the name that the module has for it.
#[cfg(test)]
extern crate self as redis_lock;

pub mod driver;
pub mod engine;
pub mod lock;
