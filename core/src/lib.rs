//! What the lock module decides and in which order, without a server: pure Rust, no `unsafe`, no clock of its own.
//!
//! - [`lock`]: values and rules. What a value in a key means, who may have the lock, which token a grant gets.
//! - [`engine`]: who waits, which locks end with their connection, who waits for whom.
//!
//! Each knows only what stands above it.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod broken;
pub mod engine;
pub mod lock;
