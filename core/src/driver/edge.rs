//! The interface to a server. `src/server` implements it for the module; the models use a fake server.

use crate::engine::grant::Event;
use crate::engine::outbox::Letter;
use crate::engine::queue::Channel;
use crate::engine::{Clock, KeyName, Limits, Shape};
use crate::lock::change::{Change, Members, Retentions};
use crate::lock::clocks::Reading;
use crate::lock::error::Error;
use crate::lock::grace;
use crate::lock::record::Id;
use crate::lock::state::State;
use crate::lock::terms::Terms;
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// The purpose of opening a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The running command names it and may change it.
    Caller,
    ReadOnly,
    /// For a waiter: checks that this server serves the key's slot. The key may be changed.
    Waiter,
}

/// What the caller expects of the key. It is checked in the key itself, not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No expectation.
    Nothing,
    /// This grant is in the key.
    Grant(Token),
    /// This attempt holds the lock.
    Attempt(Option<Id>),
}

/// Why a key could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// It holds neither a string nor a sorted set of holders.
    WrongType,
    /// It has more members than a lock can have holders.
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
    /// This server does not serve the key's slot, or the cluster is down.
    NotOurs,
    /// Any other reason: the write can be retried.
    ForNow,
}

impl From<WriteRefused> for Error {
    /// While a command runs, the server does not refuse writes for reasons that may pass.
    fn from(_: WriteRefused) -> Self {
        Self::Internal
    }
}

/// The permission to write. Only the driver grants it; outside commands, it does so once per event-loop iteration,
/// after asking the server whether the module may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit(Writer);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A running command.
    Command,
    Timer,
}

impl Permit {
    pub(super) const COMMAND: Self = Self(Writer::Command);
    pub(super) const TIMER: Self = Self(Writer::Timer);

    #[must_use]
    pub const fn writer(self) -> Writer {
        self.0
    }
}

/// An open key at one point in time.
pub trait Key {
    fn lock(&self) -> State<'_>;
    /// The point in time.
    fn now(&self) -> UnixMicros;
    /// Milliseconds until its native expiry, if it has one.
    fn expires_in_ms(&self) -> Option<u64>;
    /// How many holders were read from the key rather than from memory.
    fn holders_read(&self) -> usize;
    /// The form in which it holds a lock.
    fn shape(&self) -> Shape;
    /// Whether it holds a string.
    fn is_string(&self) -> bool;
    /// Whether it has a native expiry.
    fn has_expiry(&self) -> bool;
    /// Its holders, if it is a set.
    fn members(&mut self) -> Option<&mut Members>;
    /// Closes it: it will not be read again, and other keys are about to be written.
    fn close(&mut self);
}

/// How long something took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// From the start of a wait to its grant.
    Wait,
    /// From a grant to its release.
    Hold,
}

/// A log line's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// An operator should look into it.
    Warning,
    /// For information.
    Notice,
}

/// What a master knows about its replicas.
#[derive(Debug)]
pub struct Replication {
    pub offset: u64,
    /// The last answer from each online replica.
    pub answers: Vec<grace::Answer>,
}

/// The interface to a server. Methods that take `&mut self` may call back into the module.
pub trait Edge: Keys + Clients + Channels + Replicas + Time + Operator {}

impl<S: Keys + Clients + Channels + Replicas + Time + Operator> Edge for S {}

/// A server's keys: their names, opening and writing them, and the events that the server reports about them.
pub trait Keys {
    /// The name of a key, borrowed for an entry.
    type Name<'n>: Copy;
    type OwnName;
    /// An open key.
    type Key<'n>: Key;
    /// A change that has not been signalled yet.
    type Written<'n>;

    /// A name's database and bytes.
    fn key_name<'n>(&self, name: Self::Name<'n>) -> KeyName<'n>;
    /// A key's owned name; selects its database. `None` if there is no such name or database.
    fn name(&mut self, key: KeyName<'_>) -> Option<Self::OwnName>;
    /// Borrows a name.
    fn lend(name: &Self::OwnName) -> Self::Name<'_>;
    /// Selects a database; a command then reselects its caller's.
    fn select(&mut self, db: i32);

    /// Whether this server serves a key's slot.
    fn serves(&mut self, name: Self::Name<'_>) -> bool;
    /// Whether waiters can now get the error that their slot is not served here.
    fn may_lose_slots(&self) -> bool;
    /// Opens a key, as of `now`.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open<'n>(
        &mut self,
        name: Self::Name<'n>,
        access: Access,
        expected: Expected,
        now: UnixMicros,
    ) -> Result<Self::Key<'n>, Unseen>;
    /// Milliseconds until the native expiry of a key that holds no lock, if it has one.
    fn expires_in_ms(&mut self, name: Self::Name<'_>) -> Option<u64>;

    /// Whether the server allows a key to be written, as far as can be known in advance. Called before anybody is
    /// notified of a grant.
    ///
    /// # Errors
    /// Why the key would not be written.
    fn check_writable(&self, permit: Permit, key: &Self::Key<'_>) -> Result<(), WriteRefused>;
    /// Changes a key, replicates the change, and closes the key.
    ///
    /// # Errors
    /// Why the key was not written.
    fn write<'n>(
        &mut self,
        permit: Permit,
        key: Self::Key<'n>,
        change: Change<'_>,
    ) -> Result<Self::Written<'n>, WriteRefused>;
    /// Deletes several keys at once, up to the first that cannot be deleted. Returns the deleted keys.
    fn delete_all<'n>(&mut self, keys: Vec<Self::Key<'n>>) -> Vec<Self::Written<'n>>;
    /// Signals a change to WATCH, client tracking and modules with keyspace events, and publishes these events.
    fn signal(&mut self, written: Self::Written<'_>, events: &[Event]);

    /// Subscribes to events about keys that become free.
    fn subscribe_to_keys(&mut self);
    /// Whether the server reports every key that becomes free.
    fn reports_keys(&self) -> bool;
}

/// The running command's client, blocked clients, and connections that end.
pub trait Clients {
    /// A client that the server keeps blocked.
    type Handle;

    /// The running command's client.
    fn client(&self) -> u64;
    /// Whether this client is a connection. The server reports the end of a connection.
    fn is_connection(&self) -> bool;
    /// Whether this client may be blocked. It may not in a transaction or a script.
    fn may_block(&self) -> bool;
    /// Blocks the running command's client; `None` if the server does not block it.
    fn block(&mut self) -> Option<Self::Handle>;
    /// Answers a blocked client.
    fn answer(&mut self, handle: Self::Handle, letter: Box<Letter>);
    /// Releases a blocked client that has disconnected, or that the server itself has answered.
    fn release(&mut self, handle: Self::Handle);
    /// Subscribes to events about connections that end.
    fn subscribe_to_clients(&mut self);
}

/// Messages to attempts that wait without a connection.
pub trait Channels {
    /// Whether messages can be published now: no transaction and no script is running.
    fn may_publish(&self) -> bool;
    /// Publishes a message. Returns whether anybody may have received it.
    fn publish(&mut self, channel: &Channel, message: &[u8]) -> bool;
}

/// Replication: this server's role, its replicas, and whether it may write.
pub trait Replicas {
    /// Whether the server lets a module write now, outside a command: it is not a replica, loading or paused, and it
    /// has as many good replicas as `min-replicas-to-write` requires.
    fn may_write(&mut self) -> bool;
    /// Whether this server is a replica.
    fn is_replica(&self) -> bool;
    /// How many replicas are connected.
    fn replicas(&mut self) -> u64;
    /// The replicas' answers; `None` if the server does not report them.
    fn replication(&mut self) -> Option<Replication>;
    /// The settings for safety across failover; `None` if no grace is set.
    fn grace(&mut self) -> Option<grace::Settings>;
}

/// The clocks, and the timer.
pub trait Time {
    /// Reads the clocks.
    type Clock: Clock;
    /// A server timer.
    type TimerId: Copy;

    /// Reads the clocks.
    fn clock(&self) -> Self::Clock;
    /// The running command's time.
    fn command_time(&self) -> UnixMicros;
    /// Reads all clocks, for comparison.
    fn reading(&self) -> Reading;

    fn set_timer(&mut self, after_ms: u64) -> Self::TimerId;
    /// Stops a timer, if it has not fired.
    fn stop_timer(&mut self, timer: Self::TimerId);
}

/// The operator's settings, the memory limit, and reports to the operator.
pub trait Operator {
    /// The operator's settings for leases.
    fn terms(&self) -> Terms;
    /// The operator's settings for the queue.
    fn limits(&self) -> Limits;
    /// How many edges a search for a deadlock may inspect.
    fn most_edges(&self) -> usize;
    /// How long expired locks and holders stay.
    fn retentions(&mut self) -> Retentions;

    /// Whether the server's memory use is above its limit.
    fn is_out_of_memory(&self) -> bool;
    /// Whether its memory use is close to the limit. A server that evicts keys is never out of memory when a command
    /// runs.
    fn is_nearly_out_of_memory(&self) -> bool {
        self.is_out_of_memory()
    }

    /// Records how long something took.
    fn record(&mut self, span: Span, took: Micros);
    /// Writes a line to the log.
    fn log(&mut self, level: Level, text: &str);
}
