//! Messages, which are recorded.

use super::FakeEdge;
use redis_lock_core::driver::{Channels, Clients as _, Writer};
use redis_lock_core::engine::queue::Channel;

impl Channels for FakeEdge<'_> {
    fn may_publish(&self) -> bool {
        self.is_timer || (self.writer == Writer::Command && self.may_block())
    }

    fn publish(&mut self, channel: &Channel, message: &[u8]) -> bool {
        assert!(self.may_publish(), "a message lands in the middle of something else");
        let mut world = self.node.world.borrow_mut();
        world.messages.push((channel.clone(), message.to_vec()));
        let took = world.publish_takes;
        (world.wall, world.monotonic) = (world.wall.after(took), world.monotonic.after(took));
        world.subscribed.contains(channel)
    }
}
