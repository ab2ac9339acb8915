//! The commands, one file each with documentation, arguments, action and reply.
//!
//! All arguments are parsed into types before a key is opened, so bad input changes nothing.

pub mod acquire;
pub mod cancel;
pub mod check;
pub mod doc;
pub mod extend;
pub mod help;
pub mod info;
pub mod macquire;
pub mod mextend;
pub mod mrelease;
pub mod parse;
pub mod recover;
pub mod release;
pub mod scan;
pub mod top;
