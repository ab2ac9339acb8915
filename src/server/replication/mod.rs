//! Replication: the effects that are sent, the replicas that acknowledge them, and when the server allows a write.

pub mod effects;
pub mod may_write;
pub mod replicas;
