//! The lock protocol, model checked: every order of what clients, network, server and clock can do, within
//! bounds. docs/TESTING.md says what is checked, what is left out, and how each check was seen to fail.
//!
//! `cargo test --test model -- --nocapture` prints how many states were looked at, and the counter-examples.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects, missing_docs)]

mod check;
mod classic;
mod clients;
mod failover;
mod line;
mod mutants;
mod protocol;
mod scopes;
mod server;
