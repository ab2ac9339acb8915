//! Failovers: their effect on holders and waiters, when they give a lock to two clients, and that the failover grace
//! prevents that. `docs/FAILURE.md` explains it.

mod clients;
mod conditions;
pub mod failovers;
mod gaps;
pub mod holders;
