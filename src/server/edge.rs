//! The edge to the real server, through its module API.

use crate::driver::{Access, Edge, Expected, Level, Permit, Replication, Span, Unseen, WriteRefused, Writer};
use crate::engine::grant::Event;
use crate::engine::outbox::Letter;
use crate::engine::queue::Channel;
use crate::engine::{KeyName, Limits};
use crate::lock::change::{Change, Retentions};
use crate::lock::clocks::Reading;
use crate::lock::grace;
use crate::lock::request::Terms;
use crate::lock::time::{Micros, UnixMicros};
use crate::server::api::api;
use crate::server::api::context::{Arg, Context, OwnString};
use crate::server::api::handle::{Handle, TimerId};
use crate::server::clients::client::{self, Client};
use crate::server::clients::publish;
use crate::server::clock::{self, ServerClock};
use crate::server::keys::key::{self, Key, Mode};
use crate::server::keys::write::{self, Written};
use crate::server::log;
use crate::server::replication::may_write;
use crate::server::replication::replicas;
use crate::server::server_call::is_served_here;
use crate::server::state::{module, Module};
use redis_module::raw;

/// The part of `maxmemory` from which on nothing new is kept that only the module can free.
const NEARLY_ALL: f32 = 0.95;

/// The server, for one call.
pub struct ServerEdge<'c> {
    context: &'c Context,
    module: &'static Module,
    /// The writer: a command changes keys in place.
    writer: Writer,
    /// It is the timer itself, and not another event, that writes like it.
    is_timer: bool,
}

impl<'c> ServerEdge<'c> {
    /// Wraps one call from the server; `writer`: a command, or else the timer.
    #[must_use]
    pub fn of(context: &'c Context, writer: Writer) -> Self {
        Self { context, module: module(), writer, is_timer: false }
    }

    /// Wraps a call of the timer.
    #[must_use]
    pub fn of_timer(context: &'c Context) -> Self {
        Self { is_timer: true, ..Self::of(context, Writer::Timer) }
    }
}

impl Edge for ServerEdge<'_> {
    type Clock = ServerClock;
    type Handle = Handle;
    type TimerId = TimerId;
    type Name<'n> = Arg<'n>;
    type OwnName = OwnString;
    type Key<'n> = Key<'n>;
    type Written<'n> = Written<'n>;

    fn clock(&self) -> ServerClock {
        ServerClock
    }

    fn command_time(&self) -> UnixMicros {
        clock::of_command()
    }

    fn reading(&self) -> Reading {
        clock::all()
    }

    fn terms(&self) -> Terms {
        self.module.settings.terms()
    }

    fn limits(&self) -> Limits {
        self.module.settings.limits()
    }

    fn most_edges(&self) -> usize {
        self.module.settings.deadlock_edges()
    }

    fn retentions(&mut self) -> Retentions {
        self.module.facts.retentions(self.context, &self.module.settings)
    }

    #[inline]
    fn grace(&mut self) -> Option<grace::Settings> {
        self.module.facts.grace(self.context, &self.module.settings)
    }

    fn key_name<'n>(&self, name: Self::Name<'n>) -> KeyName<'n> {
        KeyName { db: self.context.selected_db(), name: name.as_bytes() }
    }

    fn name(&mut self, key: KeyName<'_>) -> Option<OwnString> {
        OwnString::in_db(self.context, key)
    }

    fn lend(name: &OwnString) -> Arg<'_> {
        name.as_arg()
    }

    fn select(&mut self, db: i32) {
        self.context.select_db(db);
    }

    fn serves(&mut self, name: Arg<'_>) -> bool {
        is_served_here(self.context, name)
    }

    fn open<'n>(
        &mut self,
        name: Self::Name<'n>,
        access: Access,
        expected: Expected,
        now: UnixMicros,
    ) -> Result<Self::Key<'n>, Unseen> {
        let mode = match (access, self.writer) {
            (Access::Caller, _) | (Access::Waiter, Writer::Command) => Mode::Write,
            (Access::ReadOnly, _) | (Access::Waiter, Writer::Timer) => Mode::Read,
        };
        if access == Access::Waiter && !self.serves(name) {
            return Err(Unseen::NotServed);
        }
        // SAFETY: the driver drops what it has opened before the call ends.
        let context = unsafe { self.context.copy() };
        Key::open(context, name, mode, expected, now)
    }

    fn expires_in_ms(&mut self, name: Arg<'_>) -> Option<u64> {
        key::expires_in_ms(self.context, name)
    }

    fn check_writable(&self, permit: Permit, key: &Self::Key<'_>) -> Result<(), WriteRefused> {
        write::check_writable(permit, key)
    }

    fn write<'n>(
        &mut self,
        permit: Permit,
        key: Self::Key<'n>,
        change: Change<'_>,
    ) -> Result<Self::Written<'n>, WriteRefused> {
        write::write(permit, key, change)
    }

    fn delete_all<'n>(&mut self, keys: Vec<Self::Key<'n>>) -> Vec<Self::Written<'n>> {
        write::delete_all(keys)
    }

    fn signal(&mut self, written: Written<'_>, events: &[Event]) {
        written.signal(events);
    }

    fn client(&self) -> u64 {
        client::caller(self.context)
    }

    fn is_connection(&self) -> bool {
        !self.context.has_flags(raw::REDISMODULE_CTX_FLAGS_LUA) && Client::find(self.client()).is_some()
    }

    fn may_block(&self) -> bool {
        let never = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        !self.context.has_flags(never)
    }

    /// Gives the server no time-out: on some versions, one that fires together with an answer loses the reply or ends
    /// the server. The module keeps the deadlines itself.
    fn block(&mut self) -> Option<Handle> {
        let callbacks = self.module.callbacks.get()?;
        let on_unblock = callbacks.unblock.filter(|_| self.module.facts.can_be_unblocked());
        let context = self.context.as_ptr();
        // SAFETY: the context is that of a command that may block; the callbacks are static.
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

    /// Other events can happen in the middle of a transaction: a message would land inside the reply to EXEC of a
    /// subscriber that runs it.
    fn may_publish(&self) -> bool {
        let never = raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_LUA;
        self.is_timer || (self.writer == Writer::Command && !self.context.has_flags(never))
    }

    fn publish(&mut self, channel: &Channel, message: &[u8]) -> bool {
        publish::publish(self.context, channel, message)
    }

    fn is_out_of_memory(&self) -> bool {
        self.context.has_flags(raw::REDISMODULE_CTX_FLAGS_OOM)
    }

    fn is_nearly_out_of_memory(&self) -> bool {
        // SAFETY: the function has no arguments.
        unsafe { (api().get_used_memory_ratio)() >= NEARLY_ALL }
    }

    fn may_write(&mut self) -> bool {
        may_write::may_write(self.context)
    }

    fn may_lose_slots(&self) -> bool {
        may_write::may_lose_slots(self.context)
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

    fn set_timer(&mut self, after_ms: u64) -> TimerId {
        let after = i64::try_from(after_ms).unwrap_or(i64::MAX);
        let fire = self.module.callbacks.get().and_then(|callbacks| callbacks.timer);
        // SAFETY: the context is valid; the callback is static and takes no data.
        TimerId(unsafe { (api().create_timer)(self.context.as_ptr(), after, fire, std::ptr::null_mut()) })
    }

    fn stop_timer(&mut self, timer: TimerId) {
        // SAFETY: the context is valid; the server says so when it no longer knows the timer.
        unsafe { (api().stop_timer)(self.context.as_ptr(), timer.0, std::ptr::null_mut()) };
    }

    fn subscribe_to_keys(&mut self) {
        // Where generic events do harm, keys that come free are found by checking.
        let generic = if self.module.facts.has_safe_key_events() { raw::REDISMODULE_NOTIFY_GENERIC } else { 0 };
        let classes = generic | raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;
        let on_key = self.module.callbacks.get().and_then(|callbacks| callbacks.key);
        // SAFETY: the context is valid, the callback is static.
        unsafe { (api().subscribe_to_keyspace_events)(self.context.as_ptr(), classes, on_key) };
    }

    fn reports_keys(&self) -> bool {
        self.module.facts.has_safe_key_events()
    }

    fn subscribe_to_clients(&mut self) {
        let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_CLIENT_CHANGE, dataver: 1 };
        let on_client = self.module.callbacks.get().and_then(|callbacks| callbacks.client);
        // SAFETY: the context is valid; a server that does not know the event says so.
        unsafe { (api().subscribe_to_server_event)(self.context.as_ptr(), event, on_client) };
    }

    fn record(&mut self, span: Span, took: Micros) {
        if let Some(spans) = self.module.spans.borrow_mut().as_mut() {
            spans.record(span, took);
        }
    }

    fn log(&mut self, level: Level, text: &str) {
        log::log(level, text);
    }
}
