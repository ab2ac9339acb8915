//! What the module remembers between calls, in its one static.
//!
//! All of it is touched by the server's main thread alone. Each part is lent for a moment and never across a call into
//! the server, which can call back.

use super::context::OwnString;
use super::facts::Facts;
use super::handle::{Callbacks, Handle, TimerId};
use super::histograms::Spans;
use super::set_cache::Kept;
use super::settings::Settings;
use crate::driver::Driver;
use lazy_static::lazy_static;
use redis_module::raw;
use std::cell::{Cell, RefCell};

/// What the module remembers.
#[derive(Default)]
pub struct Module {
    /// Who waits, and all else that decisions depend on.
    pub driver: RefCell<Driver<Handle, TimerId>>,
    /// What the server calls; nothing while the module is not loaded.
    pub callbacks: Cell<Option<Callbacks>>,
    /// What the operator has set.
    pub settings: Settings,
    /// What is known of the server.
    pub facts: RefCell<Facts>,
    /// The holders of locks with many.
    pub sets: RefCell<Kept>,
    /// How long locks were held and waited for; nothing while the module is not loaded.
    pub spans: RefCell<Option<Box<Spans>>>,
    /// Whether this server is a replica: asked by every command that writes, for which the server's own answer takes
    /// long.
    pub is_replica: Cell<bool>,
    /// The key that the module is writing, whose events are no news.
    pub written: Cell<Option<*mut raw::RedisModuleString>>,
    /// The words that replicate an expiry, as the last grant needed them.
    pub expiry: RefCell<Option<Expiry>>,
    /// A context that outlives calls, so that every line in the log names the module.
    pub log: Cell<Option<*mut raw::RedisModuleCtx>>,
    /// Refusals of the server that were logged.
    pub refusals: RefCell<Vec<String>>,
}

/// `PXAT ms` as strings of the server. Under load the next grant often has the same expiry: strings that are there cost it
/// nothing.
pub struct Expiry {
    /// Unix milliseconds.
    pub ms: u64,
    /// `PXAT`
    pub pxat: OwnString,
    /// The milliseconds as text.
    pub text: OwnString,
}

/// Of the server's main thread alone.
struct MainThread(Module);

// SAFETY: the server calls the module's commands and callbacks on its main thread only, and the module starts no thread.
unsafe impl Sync for MainThread {}
// SAFETY: as above.
unsafe impl Send for MainThread {}

lazy_static! {
    static ref MODULE: MainThread = MainThread(Module::default());
}

/// What the module remembers.
#[must_use]
pub fn module() -> &'static Module {
    &MODULE.0
}

impl Module {
    /// Gives back all memory: the module is unloaded.
    pub fn unload(&self) {
        drop(self.driver.take());
        drop(self.sets.take());
        drop(self.spans.take());
        drop(self.expiry.take());
        drop(self.refusals.take());
        self.facts.replace(Facts::default());
    }
}
