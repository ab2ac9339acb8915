//! What must hold for every input: for the fuzzers (`fuzz_targets/`), and for the test that replays
//! their corpus (`tests/corpus.rs`). Each check panics when it does not.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod arguments;
pub mod queue;
pub mod value;
