//! Several holders of one lock and several locks at once: who is admitted, what is written, who is served
//! in which order, and what becomes of it all in replicas, files and clusters.

mod admitted;
mod again;
mod crowd;
mod foreign;
mod lapsed;
mod many;
mod many_keys;
mod moved;
mod order;
mod others;
mod philosophers;
mod scan;
mod slots;
mod watch;

use crate::kinds::{acquire, acquire_all};
