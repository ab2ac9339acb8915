//! `portable/lock.lua`: the lock without the module, as functions and as a script. It follows the rules of the wire
//! fixture and of the module itself; beyond its limits it does what docs/PORTABLE.md says.
//!
//! The tests in `alone` need no module, and also run on servers that are too old for it.

pub mod alone;
mod client;
mod differential;
mod fleet;
mod groups;
mod limits;
mod loaded;
mod page;
mod queue;

use client::{load, Way};
