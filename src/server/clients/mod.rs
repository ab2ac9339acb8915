//! Clients: who they are and what they may do, replies to them, messages on channels.

pub mod client;
pub mod permissions;
pub mod publish;
pub mod reply;
