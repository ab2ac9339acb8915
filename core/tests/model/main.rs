//! Model checking of the driver and the engine on a fake server: every order of client, network, server and clock
//! events, within bounds. docs/TESTING.md describes what is checked, what is left out, and how each check was seen to
//! fail.
//!
//! `cargo test --test model -- --nocapture` prints the number of states visited, and the counter-examples.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]
#![allow(clippy::arithmetic_side_effects, clippy::redundant_closure_for_method_calls)]
#![allow(clippy::struct_excessive_bools)]

mod asks;
mod canonical;
mod check;
mod classic;
mod clients;
mod clock;
mod expiry;
mod failover;
mod fake;
mod gate;
mod many_clients;
mod mutants;
mod notify;
mod passing;
mod protocol;
mod queues;
mod refused_writes;
mod scopes;
mod server;
mod simulator;
mod slots;
mod turns;
mod witness;
