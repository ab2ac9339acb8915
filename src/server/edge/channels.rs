//! Messages to attempts that wait without a connection.

use super::ServerEdge;
use crate::driver::{Channels, Writer};
use crate::engine::queue::Channel;
use crate::server::clients::publish;
use redis_module::raw;

impl Channels for ServerEdge<'_> {
    /// Other events can happen in the middle of a transaction. If a subscriber runs the transaction, a message would
    /// land inside its reply to EXEC.
    fn may_publish(&self) -> bool {
        let never = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;
        self.is_timer || (self.writer == Writer::Command && !self.context.has_flags(never))
    }

    fn publish(&mut self, channel: &Channel, message: &[u8]) -> bool {
        publish::publish(self.context, channel, message)
    }
}
