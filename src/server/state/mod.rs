//! The state that the module keeps between entries, in one static.
//!
//! Only the server's main thread touches it. Each part is borrowed briefly, and never across a server call, which can
//! call back.

pub mod histograms;
pub mod set_cache;
pub mod sinks;

use crate::driver::Driver;
use crate::server::api::context::OwnString;
use crate::server::api::handle::{Callbacks, Handle, TimerId};
use crate::server::facts::resets::Resets;
use crate::server::facts::Facts;
use crate::server::settings::Settings;
use crate::server::state::histograms::Spans;
use crate::server::state::set_cache::Kept;
use crate::server::state::sinks::Sinks;
use lazy_static::lazy_static;
use redis_module::raw;
use std::cell::{Cell, RefCell};

/// The state that the module keeps between calls.
#[derive(Default)]
pub struct Module {
    /// The queues, and everything else that decisions depend on.
    pub driver: RefCell<Driver<Handle, TimerId>>,
    /// The module's callbacks; `None` while it is not loaded.
    pub callbacks: Cell<Option<Callbacks>>,
    pub settings: Settings,
    pub facts: Facts,
    /// The sets of holders in memory.
    pub sets: RefCell<Kept>,
    /// How long locks were held and waited for; `None` while the module is not loaded.
    pub spans: RefCell<Option<Box<Spans>>>,
    /// Whether this server is a replica. Every writing command needs this, and asking the server takes a long time.
    pub is_replica: Cell<bool>,
    /// Whether the server is loading its data: only an AOF writes then, no client.
    pub is_loading: Cell<bool>,
    /// Whether CONFIG RESETSTAT was run.
    pub resets: Resets,
    /// Whether there is an AOF or a replica.
    pub sinks: Sinks,
    /// The key that the module is writing: its events are ignored.
    pub written: Cell<Option<*mut raw::RedisModuleString>>,
    /// The arguments that replicate the last grant's expiry.
    pub expiry: RefCell<Option<Expiry>>,
    /// The server's refusals that were already logged.
    pub refusals: RefCell<Vec<String>>,
}

/// `PXAT ms` as server strings. Under load the next grant often has the same expiry and reuses them.
pub struct Expiry {
    /// Unix milliseconds.
    pub ms: u64,
    /// `PXAT`
    pub pxat: OwnString,
    /// The milliseconds as text.
    pub text: OwnString,
}

/// For the server's main thread alone.
struct MainThread(Module);

// SAFETY: the server calls the module's commands and callbacks on its main thread only, and the module starts no
// thread.
unsafe impl Sync for MainThread {}
// SAFETY: as above.
unsafe impl Send for MainThread {}

lazy_static! {
    static ref MODULE: MainThread = MainThread(Module::default());
}

/// The state that the module keeps between calls.
#[must_use]
pub fn module() -> &'static Module {
    &MODULE.0
}

impl Module {
    /// Frees all memory, because the module is unloaded.
    pub fn unload(&self) {
        drop(self.driver.take());
        drop(self.sets.take());
        drop(self.spans.take());
        drop(self.expiry.take());
        drop(self.refusals.take());
        self.facts.forget();
    }
}
