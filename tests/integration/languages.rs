//! The locks of `examples/`, in every language: each plays the same scenarios against real servers.
//!
//! A program per language (`tests/clients/driver*`) takes orders, a line each, and tells what became
//! of them. A scenario runs in all languages at the same time. A language that is not installed is
//! skipped, with a word about what to install; which ran is printed.

mod driver;
mod fallback;
mod faults;
mod holding;
mod junk;
mod runtimes;
mod waiting;
