//! The lock itself, and nothing of the server: what a value in a key means, who may have the lock,
//! which token a grant gets. Every function takes the time as an argument.

pub mod admit;
pub mod clocks;
pub mod effect;
pub mod error;
pub mod grace;
pub mod held;
pub mod holders;
pub mod record;
pub mod request;
pub mod retention;
pub mod rules;
pub mod state;
pub mod time;
pub mod token;
