//! One entry from the server, and the state that is kept between entries.

use super::edge::Edge;
use crate::engine::{Engine, KeyName, Wake};
use crate::lock::time::MonotonicMicros;
use std::cell::{RefCell, RefMut};

/// A timer that has not fired yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer<T> {
    pub(super) id: T,
    pub(super) wake: Wake,
    /// When it is due.
    pub(super) at: MonotonicMicros,
}

/// The state that is kept between entries from the server. `H` is a blocked client, `T` a timer.
#[derive(Clone, Debug)]
pub struct Driver<H, T> {
    pub(super) engine: Engine<H>,
    pub(super) timer: Option<Timer<T>>,
    /// Whether it has subscribed to events about keys that become free.
    pub(super) is_subscribed_to_keys: bool,
    /// Whether it has subscribed to events about connections that end.
    pub(super) is_subscribed_to_clients: bool,
}

impl<H, T> Default for Driver<H, T> {
    fn default() -> Self {
        Self { engine: Engine::default(), timer: None, is_subscribed_to_keys: false, is_subscribed_to_clients: false }
    }
}

impl<H, T> Driver<H, T> {
    /// The engine, read-only.
    #[must_use]
    pub const fn engine(&self) -> &Engine<H> {
        &self.engine
    }

    /// Whether it has subscribed to everything it will ever need.
    pub(super) const fn is_subscribed_to_all(&self) -> bool {
        self.is_subscribed_to_keys && self.is_subscribed_to_clients
    }
}

/// One entry from the server.
pub struct Entry<'d, E: Edge> {
    driver: &'d RefCell<Driver<E::Handle, E::TimerId>>,
    pub(super) edge: E,
}

impl<'d, E: Edge> Entry<'d, E> {
    /// Begins an entry.
    pub const fn new(driver: &'d RefCell<Driver<E::Handle, E::TimerId>>, edge: E) -> Self {
        Self { driver, edge }
    }

    /// Borrows the engine.
    pub fn engine(&mut self) -> RefMut<'_, Engine<E::Handle>> {
        RefMut::map(self.driver.borrow_mut(), |driver| &mut driver.engine)
    }

    /// Borrows the server.
    pub const fn edge(&mut self) -> &mut E {
        &mut self.edge
    }

    /// A name's database and bytes if the engine needs them: it does not while nobody waits and no lock ends with its
    /// connection.
    #[inline]
    pub(super) fn known_name<'n>(&mut self, name: E::Name<'n>) -> KeyName<'n> {
        if self.engine().is_quiet() {
            KeyName::NOBODYS
        } else {
            self.edge.key_name(name)
        }
    }

    /// Borrows the state that is kept between entries.
    pub(super) fn state(&mut self) -> RefMut<'_, Driver<E::Handle, E::TimerId>> {
        self.driver.borrow_mut()
    }
}
