//! Replication: the effects that are sent, the replicas that acknowledge them, and when the server allows a write.
//! `state/sinks.rs` tracks whether there is an AOF or a replica at all.

pub mod effects;
pub mod may_write;
pub mod replicas;
