//! The one place that says in which order things happen: open, decide, write, be told, signal, answer, finish.
//!
//! It is generic over [`Edge`], what it needs from a server. The module runs it on a real one, the models on a fake one.
//!
//! An [`Entry`] is one call from the server. It lends either the engine or the server, because the server can call back:
//! the compiler rejects a borrow of the engine across a call. [`Entry::finish`] ends each of them.

mod acquire;
mod deadlock;
mod edge;
mod extend;
mod finish;
mod gate;
mod notice;
mod parked;
mod release;
mod serve;
mod wait;
mod write;

pub use acquire::{Ask, Outcome};
pub use edge::{Access, Edge, Expected, Key, Level, Permit, Replication, Span, Unseen, WriteRefused, Writer};

use crate::engine::Engine;
use finish::Timer;
use std::cell::{RefCell, RefMut};

/// What is remembered between calls from the server. `H` is a blocked client, `T` a timer.
#[derive(Clone, Debug)]
pub struct Driver<H, T> {
    engine: Engine<H>,
    timer: Option<Timer<T>>,
    /// The server tells of keys that come free.
    hears_of_keys: bool,
    /// The server tells of connections that end.
    hears_of_clients: bool,
}

impl<H, T> Default for Driver<H, T> {
    fn default() -> Self {
        Self { engine: Engine::default(), timer: None, hears_of_keys: false, hears_of_clients: false }
    }
}

impl<H, T> Driver<H, T> {
    /// The engine, to be looked at.
    #[must_use]
    pub const fn engine(&self) -> &Engine<H> {
        &self.engine
    }
}

/// One call from the server.
pub struct Entry<'d, E: Edge> {
    driver: &'d RefCell<Driver<E::Handle, E::TimerId>>,
    edge: E,
}

impl<'d, E: Edge> Entry<'d, E> {
    /// The server calls.
    pub const fn new(driver: &'d RefCell<Driver<E::Handle, E::TimerId>>, edge: E) -> Self {
        Self { driver, edge }
    }

    /// Lends the engine.
    pub fn engine(&mut self) -> RefMut<'_, Engine<E::Handle>> {
        RefMut::map(self.driver.borrow_mut(), |driver| &mut driver.engine)
    }

    /// Lends the server.
    pub const fn edge(&mut self) -> &mut E {
        &mut self.edge
    }

    fn state(&mut self) -> RefMut<'_, Driver<E::Handle, E::TimerId>> {
        self.driver.borrow_mut()
    }
}
