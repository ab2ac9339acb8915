//! The server of a model state: the module itself, on the fake server.
//!
//! States are compared and hashed by the canonical form of their server, and the checker moves them between threads. A
//! [`Node`] allows neither, so it stays with the thread that built it as long as a state refers to it.

use crate::fake::{Form, Node, Settings};
use redis_lock_core::lock::time::UnixMicros;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

thread_local! {
    static NODES: RefCell<HashMap<u64, Node>> = RefCell::default();
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The server's time at the start of the model.
pub const START_S: u64 = 1_763_710_000;

/// A server that does not change.
#[derive(Clone)]
pub struct Server(Arc<Kept>);

struct Kept {
    number: u64,
    form: Form,
    /// The settings of a server that has just started: each thread starts one afresh.
    fresh: Option<Settings>,
}

impl Server {
    /// A server that has just started.
    pub fn start(settings: Settings) -> Self {
        Self::keep(Self::fresh(settings), Some(settings))
    }

    fn fresh(settings: Settings) -> Node {
        let node = Node::new(settings, UnixMicros(START_S * 1_000_000));
        // It has read its clocks.
        node.event(|entry| entry.tick());
        node
    }

    /// Keeps a server in its current state.
    pub fn of(node: Node) -> Self {
        Self::keep(node, None)
    }

    fn keep(node: Node, fresh: Option<Settings>) -> Self {
        let (number, form) = (NUMBERS.fetch_add(1, Ordering::Relaxed), node.canonical());
        NODES.with_borrow_mut(|nodes| nodes.insert(number, node));
        Self(Arc::new(Kept { number, form, fresh }))
    }

    /// Runs `body` on the server without changing it.
    pub fn inspect<R>(&self, body: impl FnOnce(&Node) -> R) -> R {
        NODES.with_borrow(|nodes| {
            if let Some(node) = nodes.get(&self.0.number) {
                return body(node);
            }
            let fresh = self.0.fresh.expect("a thread meets only its own servers, and servers that have just started");
            body(&Self::fresh(fresh))
        })
    }

    /// A copy that can change.
    pub fn copy(&self) -> Node {
        self.inspect(Node::clone)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // At the end of a thread this fails, but then all of them are dropped.
        let _ = NODES.try_with(|nodes| nodes.borrow_mut().remove(&self.number));
    }
}

/// The visible part of a server.
impl Deref for Server {
    type Target = Form;

    fn deref(&self) -> &Form {
        &self.0.form
    }
}

impl PartialEq for Server {
    fn eq(&self, other: &Self) -> bool {
        self.0.form == other.0.form
    }
}

impl Eq for Server {}

impl Hash for Server {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.0.form.hash(state);
    }
}

impl Debug for Server {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        self.0.form.fmt(out)
    }
}
