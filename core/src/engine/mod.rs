//! What the module remembers besides the keys: who waits, which locks end with their connection.

pub mod deadlock;
pub mod queue;
pub mod sessions;
