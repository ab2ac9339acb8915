//! Everything that needs a real server: one file per concern.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::arithmetic_side_effects, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod async_load;
mod beside;
mod bounds;
mod cli;
mod cluster;
mod complaints;
mod deadlock;
mod demo;
mod descriptions;
mod documents;
mod events;
mod examples;
mod factory;
mod fairness;
mod figures;
mod fleet;
mod guards;
mod holders;
mod hostile;
mod iterations;
mod keys;
mod kinds;
mod listeners;
mod log;
mod look;
mod metadata;
mod metrics;
mod migrating;
mod neighbours;
mod notify;
mod operator;
mod package;
mod pages;
mod persistence;
mod portable;
mod race;
mod recipes;
mod redlock;
mod refused;
mod replica;
mod replication;
mod sentinel;
mod sessions;
mod settings;
mod stall;
mod suspend;
mod upgrade;
mod waiting;
mod wire;
