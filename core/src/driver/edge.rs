//! What the driver needs from a server. The module's edge is `src/server`; the models have a fake one.

use crate::engine::grant::Event;
use crate::engine::outbox::Letter;
use crate::engine::{Clock, KeyName, Limits, Shape};
use crate::lock::clocks::Reading;
use crate::lock::effect::{Change, Members, Retentions};
use crate::lock::error::Error;
use crate::lock::grace;
use crate::lock::record::Id;
use crate::lock::rules::{State, Terms};
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// How a key is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The command that runs names it, and may change it.
    Caller,
    /// The command that runs only reads it, or nobody will ever change it for this.
    ReadOnly,
    /// For somebody who waits: whether it is served here is asked, and it may be changed.
    Waiter,
}

/// What the caller says of the key: it has to be found in the key itself, not in what is remembered of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Nothing,
    /// This grant.
    Grant(Token),
    /// The grant of this attempt.
    Attempt(Option<Id>),
}

/// Why a key could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// It holds neither a string nor a sorted set of holders.
    WrongType,
    /// It holds more holders than a lock has.
    TooManyHolders,
    /// Its slot is not served here.
    NotServed,
}

impl From<Unseen> for Error {
    fn from(unseen: Unseen) -> Self {
        match unseen {
            Unseen::WrongType => Self::WrongType,
            Unseen::TooManyHolders => Self::TooManyHolders,
            Unseen::NotServed => Self::SlotLost,
        }
    }
}

/// Why a key was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRefused {
    /// The slot of the key is not ours, or the cluster is down.
    NotOurs,
    /// Anything else: it may be done later.
    ForNow,
}

impl From<WriteRefused> for Error {
    /// To a command that runs, the server refuses no write that it could do later.
    fn from(_: WriteRefused) -> Self {
        Self::Internal
    }
}

/// Who writes. Given by the driver alone: outside of commands once in each event-loop iteration, when it has asked
/// whether the module may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit(Writer);

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A command that runs.
    Command,
    /// The timer.
    Timer,
}

impl Permit {
    pub(super) const COMMAND: Self = Self(Writer::Command);
    pub(super) const TIMER: Self = Self(Writer::Timer);

    /// Who writes.
    #[must_use]
    pub const fn writer(self) -> Writer {
        self.0
    }
}

/// A key that is open, as it is at one point in time.
pub trait Key {
    /// What it is to everybody but its writer.
    fn lock(&self) -> State<'_>;
    /// The time that it tells of.
    fn now(&self) -> UnixMicros;
    /// Milliseconds until its native expiry, if it has one.
    fn expires_in_ms(&self) -> Option<u64>;
    /// How it holds a lock.
    fn shape(&self) -> Shape;
    /// Whether it holds a string.
    fn is_string(&self) -> bool;
    /// Whether it has a native expiry.
    fn has_expiry(&self) -> bool;
    /// Its holders, where it holds several.
    fn members(&mut self) -> Option<&mut Members>;
    /// It is not read any longer, and other keys are about to be written.
    fn close(&mut self);
}

/// How long something took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Somebody waited, and got the lock.
    Wait,
    /// A lock was held, and given back.
    Hold,
}

/// How much an operator cares for a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something to look at.
    Warning,
    /// Something to know.
    Notice,
}

/// What a master knows of its replicas.
#[derive(Debug)]
pub struct Replication {
    /// Its own offset.
    pub offset: u64,
    /// What those that are online have answered.
    pub answers: Vec<grace::Answer>,
}

/// What the driver needs from a server. Methods that take `&mut self` may call back into the module.
pub trait Edge {
    /// Reads the clocks.
    type Clock: Clock;
    /// A client that the server keeps blocked.
    type Handle;
    /// A timer of the server.
    type TimerId: Copy;
    /// The name of a key, lent for a call.
    type Name<'n>: Copy;
    /// A name of its own.
    type OwnName;
    /// A key that is open.
    type Key<'n>: Key;
    /// A change that nobody was told of yet.
    type Written<'n>;

    /// Reads the clocks.
    fn clock(&self) -> Self::Clock;
    /// The time of the command that runs.
    fn command_time(&self) -> UnixMicros;
    /// All clocks, to be compared.
    fn reading(&self) -> Reading;

    /// What the operator has set for leases.
    fn terms(&self) -> Terms;
    /// What the operator has set for the queue.
    fn limits(&self) -> Limits;
    /// How many edges a search for a deadlock may inspect.
    fn most_edges(&self) -> usize;
    /// How long what has expired stays.
    fn retentions(&mut self) -> Retentions;
    /// What safety across failover depends on; nothing where it is off.
    fn grace(&mut self) -> Option<grace::Settings>;

    /// Database and bytes of a name.
    fn key_name<'n>(&self, name: Self::Name<'n>) -> KeyName<'n>;
    /// The name of a key, whose database is selected from now on; nothing if there is none.
    fn name(&mut self, key: KeyName<'_>) -> Option<Self::OwnName>;
    /// A name, lent.
    fn lend(name: &Self::OwnName) -> Self::Name<'_>;
    /// Selects a database: in a command, that of its caller again.
    fn select(&mut self, db: i32);

    /// Whether the slot of a key is served here.
    fn serves(&mut self, name: Self::Name<'_>) -> bool;
    /// Opens a key, as of `now`.
    ///
    /// # Errors
    /// Why it cannot be seen.
    fn open<'n>(
        &mut self,
        name: Self::Name<'n>,
        access: Access,
        expected: Expected,
        now: UnixMicros,
    ) -> Result<Self::Key<'n>, Unseen>;
    /// Changes a key and closes it, replicas and the AOF included.
    ///
    /// # Errors
    /// Why it was not done.
    fn write<'n>(
        &mut self,
        permit: Permit,
        key: Self::Key<'n>,
        change: Change<'_>,
    ) -> Result<Self::Written<'n>, WriteRefused>;
    /// Deletes several keys at once; those that were.
    fn delete_all<'n>(&mut self, keys: Vec<Self::Key<'n>>) -> Vec<Self::Written<'n>>;
    /// Tells WATCH, client tracking and listeners of keyspace events of a change, and of these events besides.
    fn signal(&mut self, written: Self::Written<'_>, events: &[Event]);

    /// The client of the command that runs.
    fn client(&self) -> u64;
    /// Whether that is a connection of its own, whose end the server tells.
    fn is_connection(&self) -> bool;
    /// Whether that may be kept waiting: not in a transaction or a script.
    fn may_block(&self) -> bool;
    /// Blocks the client of the command that runs, if the server does.
    fn block(&mut self) -> Option<Self::Handle>;
    /// Answers a client that was blocked.
    fn answer(&mut self, handle: Self::Handle, letter: Box<Letter>);
    /// Gives a client back that is gone, or that the server has answered itself.
    fn release(&mut self, handle: Self::Handle);

    /// Whether the server lets a module write now, outside of a command: it is no replica, not loading, not paused, and
    /// has as many good replicas as it wants.
    fn may_write(&mut self) -> bool;
    /// Whether waiters of keys whose slots are not served here can be told so now.
    fn may_lose_slots(&self) -> bool;
    /// Whether this server is a replica.
    fn is_replica(&self) -> bool;
    /// How many replicas are connected.
    fn replicas(&mut self) -> u64;
    /// What the replicas have answered; nothing where the server does not tell.
    fn replication(&mut self) -> Option<Replication>;

    /// Sets a timer.
    fn set_timer(&mut self, after_ms: u64) -> Self::TimerId;
    /// Stops a timer, if it has not fired.
    fn stop_timer(&mut self, timer: Self::TimerId);
    /// Asks to be told of keys that come free.
    fn listen_to_keys(&mut self);
    /// Whether all of them are told of.
    fn tells_of_keys(&self) -> bool;
    /// Asks to be told of connections that end.
    fn listen_to_clients(&mut self);

    /// Records how long something took.
    fn record(&mut self, span: Span, took: Micros);
    /// Writes a line to the log.
    fn log(&mut self, level: Level, text: &str);
}
