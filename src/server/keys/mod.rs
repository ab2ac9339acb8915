//! The keys: opened and read, written, signalled, scanned.

mod holder_sets;
pub mod key;
pub mod scan;
pub mod served;
pub mod signal;
pub mod write;
mod zset;
