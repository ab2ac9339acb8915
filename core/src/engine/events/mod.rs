//! Everything that happens to a server's locks: an `impl Engine` for each kind of event, and for steps that several
//! events share.

pub(crate) mod acquire;
pub(crate) mod cancel;
pub(crate) mod claim;
pub(crate) mod commit;
pub mod deadlock_search;
pub(crate) mod delivery;
pub(crate) mod demotion;
pub(crate) mod disconnect;
pub(crate) mod end_wait;
pub(crate) mod hand_off;
pub(crate) mod join;
pub(crate) mod lease_check;
pub(crate) mod leaving;
pub(crate) mod next_run;
pub(crate) mod notify;
pub(crate) mod release;
pub(crate) mod results;
pub(crate) mod serve;
pub(crate) mod several_locks;
pub(crate) mod time_out;
pub(crate) mod unclaimed;
