//! The order of all steps: open, decide, write, commit, signal, answer, finish.
//!
//! It is generic over [`Edge`], the interface to a server. The module runs it on a real server, and the models run it
//! on a fake one.
//!
//! An [`Entry`] is one entry from the server. It lends either the engine or the server, because the server can call
//! back. The compiler rejects a borrow of the engine across such a call. [`Entry::finish`] ends every entry.

mod acquire;
#[cfg(feature = "model")]
mod canonical;
mod claim;
mod deadlock;
mod edge;
mod end_session;
mod entry;
mod extend;
mod finish;
mod gate;
mod hand_off;
mod notify;
mod release;
mod server_events;
mod several_locks;
mod timer;
mod wait;
mod write;

pub use acquire::{Ask, ChannelName, Outcome};
#[cfg(feature = "model")]
pub use canonical::Canonical;
pub use edge::{
    Access, Channels, Clients, Edge, Expected, Key, Keys, Level, Operator, Permit, Replicas, Replication, Span, Time,
    Unseen, WriteRefused, Writer,
};
pub use entry::{Driver, Entry};
