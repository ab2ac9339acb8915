//! The edge: everything that touches the server's module API, and the only folder with `unsafe`.
//!
//! All of it runs on the server's main thread. What the server calls goes through [`call`], which gives each call an
//! entry to the driver; what the driver needs from the server is in [`edge`].
#![allow(unsafe_code)]

mod alloc;
mod api;
pub mod args;
mod blocked;
pub mod call;
pub mod client;
pub mod clock;
mod configure;
pub mod context;
pub mod doc;
pub mod edge;
mod events;
mod facts;
mod guard;
mod handle;
mod info_section;
mod inspect;
mod kept;
pub mod key;
pub mod loading;
mod log;
mod module;
mod permit;
pub mod reader;
mod refusals;
mod register;
mod replicas;
pub mod reply;
pub mod scan;
mod sets;
mod settings;
mod signal;
mod spans;
mod version;
mod write;
mod zset;
