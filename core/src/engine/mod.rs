//! What the module remembers besides the keys, and what it decides from that: one `impl Engine` for each event.
//!
//! Nothing here writes a key or knows a server. A decision changes nothing but tokens; when it was written, the engine
//! is told, and only then does it change. Several parts stand on their own: [`queue`], [`sessions`], [`deadlock`],
//! [`outstanding`], [`grace`], [`predecessors`], [`counters`], [`outbox`]. Only the events touch more than one of them.

pub mod counters;
pub mod deadlock;
pub mod deadlock_search;
pub mod grace;
pub mod grant;
pub mod outbox;
pub mod outstanding;
pub mod predecessors;
pub mod queue;
pub mod sessions;

mod acquire;
mod cancel;
mod canonical;
mod demotion;
mod disconnect;
mod hand_off;
mod join;
mod lease_check;
mod parts;
mod serve;
mod time_out;
mod undelivered;
mod written;

pub use acquire::Wanted;
pub use canonical::Canonical;
pub use hand_off::{Left, Successor};
pub use join::{due, Blocked};
pub use parts::{Clock, Engine, KeyName, Limits};
pub use serve::{Found, Iteration, KeyChange, Task, Wake, Why};
pub use written::{Caller, Shape};
