//! The edge: everything that touches the server's module API, and the only folder with `unsafe`.
//!
//! All of it runs on the server's main thread. The server calls the functions in [`entries`]; each opens an entry to
//! the driver. [`edge`] implements what the driver needs from the server, using the folders below it.
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
mod slot;
mod state;
