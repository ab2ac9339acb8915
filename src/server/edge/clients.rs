//! The caller, blocked clients, and connections that end.

use super::ServerEdge;
use crate::driver::Clients;
use crate::engine::outbox::Letter;
use crate::server::api::api;
use crate::server::api::handle::Handle;
use crate::server::clients::client::{self, Client};
use redis_module::raw;

impl Clients for ServerEdge<'_> {
    type Handle = Handle;

    fn client(&self) -> u64 {
        client::caller(self.context)
    }

    fn is_connection(&self) -> bool {
        Client::find(self.context, self.client()).is_some()
    }

    fn may_block(&self) -> bool {
        let never = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        !self.context.has_flags(never)
    }

    /// Gives the server no time-out: on some versions, a time-out that fires together with an answer loses the reply or
    /// crashes the server. The module keeps the deadlines itself.
    fn block(&mut self) -> Option<Handle> {
        let callbacks = self.module.callbacks.get()?;
        let on_unblock = callbacks.unblock.filter(|_| self.module.facts.can_be_unblocked());
        let context = self.context.as_ptr();
        // SAFETY: the context belongs to a command that may block; the callbacks are static.
        let handle = unsafe { (api().block_client)(context, callbacks.reply, on_unblock, Some(callbacks.free), 0) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle is new.
        unsafe { (api().set_disconnect_callback)(handle, callbacks.disconnect) };
        Some(Handle(handle))
    }

    fn answer(&mut self, handle: Handle, letter: Box<Letter>) {
        let letter = Box::into_raw(letter);
        // SAFETY: the handle is released once, because this takes it; `free` takes the letter back.
        unsafe { (api().unblock_client)(handle.0, letter.cast()) };
    }

    fn release(&mut self, handle: Handle) {
        // SAFETY: the handle is released once, because this takes it.
        unsafe { (api().unblock_client)(handle.0, std::ptr::null_mut()) };
    }

    fn subscribe_to_clients(&mut self) {
        let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_CLIENT_CHANGE, dataver: 1 };
        let on_client = self.module.callbacks.get().and_then(|callbacks| callbacks.client);
        // SAFETY: the context is valid; a server that does not know the event reports an error.
        unsafe { (api().subscribe_to_server_event)(self.context.as_ptr(), event, on_client) };
    }
}
