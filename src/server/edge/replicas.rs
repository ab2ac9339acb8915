//! The server's role, its replicas, and whether the module may write.

use super::ServerEdge;
use crate::driver::{Replicas, Replication};
use crate::lock::grace;
use crate::server::replication::may_write;
use crate::server::replication::replicas;

impl Replicas for ServerEdge<'_> {
    fn may_write(&mut self) -> bool {
        may_write::may_write(self.context)
    }

    fn is_replica(&self) -> bool {
        self.context.is_replica()
    }

    fn replicas(&mut self) -> u64 {
        replicas::connected(self.context)
    }

    fn replication(&mut self) -> Option<Replication> {
        replicas::answers(self.context)
    }

    #[inline]
    fn grace(&mut self) -> Option<grace::Settings> {
        self.module.facts.grace(self.context, &self.module.settings)
    }
}
