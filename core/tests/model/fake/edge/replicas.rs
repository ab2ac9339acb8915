//! The server's role, and its replicas' answers.

use super::FakeEdge;
use redis_lock_core::driver::{Replicas, Replication};
use redis_lock_core::lock::grace;

impl Replicas for FakeEdge<'_> {
    fn may_write(&mut self) -> bool {
        let world = self.node.world.borrow();
        !world.is_paused && !world.is_replica && !world.is_short_of_replicas
    }

    fn is_replica(&self) -> bool {
        self.node.world.borrow().is_replica
    }

    fn replicas(&mut self) -> u64 {
        self.replication().map_or(0, |replication| replication.answers.len() as u64)
    }

    fn replication(&mut self) -> Option<Replication> {
        let (offset, answers) = self.node.world.borrow().replication.clone()?;
        Some(Replication { offset, answers })
    }

    fn grace(&mut self) -> Option<grace::Settings> {
        self.settings().grace
    }
}
