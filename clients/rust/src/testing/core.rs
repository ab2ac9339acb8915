//! The server in memory and its clock together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::lock::ConnectionId;
use super::memory::{Memory, Reply};
use super::time::Moved;
use crate::clock::{Clock, Time};
use crate::held::Watch;
use crate::sync::locked;

/// The error reply for a refused key: one that is not retried.
const REFUSAL: &str = "CLOCK the test refuses this key";

pub(super) struct Core {
    memory: Mutex<Memory>,
    pub(super) moved: Arc<Moved>,
    connections: AtomicU64,
}

impl Core {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { memory: Mutex::default(), moved: Arc::new(Moved::new()), connections: AtomicU64::new(0) })
    }

    pub(super) fn clock(&self) -> Clock {
        Clock::of(Arc::<Moved>::clone(&self.moved))
    }

    pub(super) fn time(&self) -> SystemTime {
        let time = UNIX_EPOCH.checked_add(Memory::server_time(self.moved.now()));
        time.unwrap_or(UNIX_EPOCH)
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Memory, Duration) -> T) -> T {
        let mut memory = locked(&self.memory);
        let now = self.moved.now();
        change(&mut memory, now)
    }

    /// Carries out a command that does not block.
    pub(super) fn call(&self, words: &[Vec<u8>]) -> Reply {
        let reply = self.change(|memory, now| memory.command(None, words, now));
        reply.unwrap_or(Ok(Value::Nil))
    }

    /// Adds a connection. Returns its replies.
    pub(super) fn accept(&self) -> (ConnectionId, UnboundedReceiver<Reply>) {
        let (id, (sender, replies)) = (self.connections.fetch_add(1, Ordering::SeqCst), unbounded_channel());
        self.change(|memory, _| memory.connections.insert(id, sender));
        (id, replies)
    }

    /// Carries out a command of a connection.
    pub(super) fn command_on(&self, connection: ConnectionId, words: &[Vec<u8>]) {
        self.change(|memory, now| {
            if let Some(reply) = memory.command(Some(connection), words, now) {
                memory.send(connection, reply);
            }
        });
    }

    /// Moves the clock to the next thing that is due by then, and carries it out. If there is none, moves the clock to
    /// the end, and returns false.
    pub(super) fn step(&self, end: Duration) -> bool {
        let mut memory = locked(&self.memory);
        let (of_server, of_clients) = (memory.due(self.moved.now()), self.moved.due());
        let is_due = |at: Option<Duration>| at.filter(|at| *at <= end);
        match (is_due(of_server), is_due(of_clients)) {
            (Some(at), clients) if clients.is_none_or(|client| at <= client) => {
                self.moved.set(at);
                memory.act(at);
            }
            (_, Some(_)) => {
                drop(memory);
                self.moved.fire(end);
            }
            _ => {
                self.moved.set(end);
                return false;
            }
        }
        true
    }

    pub(super) fn end_of(&self, span: Duration) -> Duration {
        self.moved.now().saturating_add(span)
    }

    pub(super) fn expire(&self, key: &[u8]) {
        self.change(|memory, now| memory.expire(key, now));
    }

    pub(super) fn lose(&self, watch: &Watch) {
        let hold = watch.hold();
        hold.lose("the test says so", true);
        self.change(|memory, now| {
            for key in hold.request.keys.iter() {
                memory.release(key, hold.token, None, now);
            }
        });
    }

    pub(super) fn refuse(&self, key: &[u8]) {
        self.change(|memory, now| memory.refuse(key, REFUSAL, now));
    }

    pub(super) fn allow(&self, key: &[u8]) {
        self.change(|memory, _| _ = memory.refusals.remove(key));
    }

    pub(super) fn waiting(&self, key: &[u8]) -> usize {
        self.change(|memory, _| memory.waiting(key))
    }
}
