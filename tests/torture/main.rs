//! Clients work with locks on real servers while a seed injects random faults. The tests record and judge each client's
//! operations. docs/TESTING.md says what that proves and what it leaves out.
//!
//! `make torture SEED=1 SECONDS=60`, or `TORTURE_SEED=1 TORTURE_SECONDS=60 cargo test --test torture run:: --
//! --nocapture`. `TORTURE_SETUPS=pair,cluster` runs only these setups of `plan.rs`. By default, as part of `make test`,
//! the run is short and has a fixed seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects, missing_docs)]

mod check;
mod clients;
mod faults;
mod history;
mod many;
mod moment;
mod plan;
mod record;
mod report;
mod run;
mod sinks;
mod site;
mod small;
mod soak;
mod world;
