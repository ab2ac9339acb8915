//! The edge: everything that touches the server's module API, and the only folder with `unsafe`.
//!
//! All of it runs on the server's main thread. Every call from the server goes through [`call`], which gives it an
//! entry to the driver; [`edge`] has what the driver needs from the server.
#![allow(unsafe_code)]

mod alloc;
mod api;
pub mod args;
mod blocked;
pub mod call;
pub mod client;
pub mod clock;
pub mod command_docs;
mod configure;
pub mod context;
pub mod edge;
mod events;
mod facts;
mod handle;
mod histograms;
mod holder_sets;
mod info_fields;
pub mod key;
mod listeners;
mod log;
mod may_write;
mod module;
pub mod on_load;
mod panics;
pub mod publish;
pub mod reader;
mod refusals;
mod register;
mod replica_acks;
mod replicate;
pub mod reply;
mod resets;
pub mod scan;
mod server_facts;
mod set_cache;
mod settings;
mod signal;
mod slot;
mod stream;
mod version;
mod zset;
