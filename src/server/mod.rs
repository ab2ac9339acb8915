//! The edge: everything that touches the server's module API, and the only folder with `unsafe`.
//!
//! All of it runs on the server's main thread. [`entries`] are what the server calls: each gives its caller an entry to
//! the driver, for which [`edge`] implements what the driver needs from the server, with the folders below it.
#![allow(unsafe_code)]

pub mod api;
pub mod clients;
pub mod clock;
pub mod edge;
pub mod entries;
mod facts;
pub mod keys;
mod log;
mod panics;
mod replication;
mod server_call;
mod settings;
mod state;
