//! Properties that hold for every input, for the fuzzers (`fuzz_targets/`), the test that replays their corpus
//! (`tests/corpus.rs`), and the core's unit tests. A check panics when its property does not hold.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

pub mod arguments;
pub mod queue;
pub mod value;
