//! The edge: everything that touches the server's module API, and the only folder with `unsafe`.
//!
//! All of it runs on the server's main thread. No borrow of module state is held across a call
//! into the server, which may call back.
#![allow(unsafe_code)]

mod alloc;
mod api;
pub mod blocked;
mod callback;
pub mod clock;
mod clock_watch;
pub mod closed;
pub mod context;
mod deadlock;
mod events;
pub mod failover;
pub mod grant;
mod info_section;
mod kept;
pub mod key;
mod leases;
mod load;
mod main_thread;
mod metadata;
pub mod parked;
pub mod reader;
mod recoveries;
mod serve;
pub mod session;
mod set;
pub mod settings;
mod several;
pub mod state;
pub mod stats;
pub mod tell;
mod tick;
mod timer;
mod version;
pub mod waiting;
pub mod write;
