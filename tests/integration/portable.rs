//! `portable/lock.lua`: the lock where the module is not loaded, as functions and as a script. Its rules are those of
//! the wire fixture and of the module itself; beyond its limits happens what docs/PORTABLE.md says.
//!
//! The tests in `alone` need no module and run on servers that are too old for it, too.

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
