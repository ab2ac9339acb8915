//! What the module remembers besides the keys, and what it decides from that: one `impl Engine` for each event.
//!
//! Nothing here writes a key or knows a server. A decision changes nothing but tokens; when it was written, the engine
//! is told, and only then does it change. Several parts stand on their own: [`queue`], [`sessions`], [`deadlock`],
//! [`outstanding`], [`gate`], [`predecessors`], [`counters`], [`outbox`]. Only the events touch more than one of them.

pub mod counters;
pub mod deadlock;
pub mod gate;
pub mod grant;
pub mod outbox;
pub mod outstanding;
pub mod predecessors;
pub mod queue;
pub mod search;
pub mod sessions;

mod acquire;
mod canonical;
mod join;
mod leave;
mod release;
mod serve;
mod state;
mod told;

pub use acquire::Wanted;
pub use canonical::Canonical;
pub use join::{due, Blocked};
pub use release::{Left, Successor};
pub use serve::{Found, Iteration, KeyChange, Task, Wake, Why};
pub use state::{Clock, Engine, KeyName, Limits};
pub use told::{Caller, Shape};
