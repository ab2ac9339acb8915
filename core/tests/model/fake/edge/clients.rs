//! The caller, blocked clients, and connections that end.

use super::super::Blocked;
use super::FakeEdge;
use redis_lock_core::driver::Clients;
use redis_lock_core::engine::outbox::Letter;

impl Clients for FakeEdge<'_> {
    type Handle = Blocked;

    fn client(&self) -> u64 {
        self.client
    }

    fn is_connection(&self) -> bool {
        !self.node.world.borrow().is_script
    }

    fn may_block(&self) -> bool {
        let world = self.node.world.borrow();
        !world.is_script && !world.is_transaction
    }

    fn block(&mut self) -> Option<Blocked> {
        let blocked = Blocked(self.client);
        let mut world = self.node.world.borrow_mut();
        assert!(!world.blocked.contains(&blocked), "a client is blocked twice");
        world.blocked.push(blocked);
        Some(blocked)
    }

    fn answer(&mut self, handle: Blocked, letter: Box<Letter>) {
        self.release(handle);
        self.node.world.borrow_mut().letters.push((handle, letter.answer));
    }

    fn release(&mut self, handle: Blocked) {
        let mut world = self.node.world.borrow_mut();
        let at = world.blocked.iter().position(|blocked| *blocked == handle).expect("a client is released once");
        world.blocked.remove(at);
    }

    fn subscribe_to_clients(&mut self) {
        let mut world = self.node.world.borrow_mut();
        world.subscriptions.push("clients");
        world.has_client_events = true;
    }
}
