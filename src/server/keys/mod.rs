//! Keys: opening and reading, writing, signalling and scanning them.

mod holder_sets;
pub mod key;
pub mod scan;
pub mod served;
pub mod signal;
pub mod write;
mod zset;
