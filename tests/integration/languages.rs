//! The locks of `examples/` that are copied, in every language: each plays the same scenarios against real servers.
//! (The packages in `clients/` have a suite of their own.) The short examples that use the packages run as well.
//!
//! A program per language (`tests/clients/driver*`) takes orders, a line each, and reports the results. A scenario runs
//! in all languages at the same time. A language that is not installed is skipped, with a hint what to install; the
//! languages that ran are printed.

mod driver;
mod examples;
mod fallback;
mod faults;
mod holding;
mod junk;
mod runtimes;
mod waiting;
