//! All rules under one name: who may have a lock ([`super::admit`]), and what can be done with a grant
//! ([`super::held`]).

pub use super::admit::{
    acquire, acquire_all, admit, could_have, other_share, pass_on, recover, Acquire, Admission, Holds, Predecessor,
    Turn,
};
pub use super::held::{
    check, claim, end_session, extend, extend_all, extend_from, held_by, lease_left, release, release_from, stands,
    Extended, Release,
};
pub use super::request::{Request, Share, Terms};
pub use super::retention::Retention;
pub use super::state::State;
