//! Attempts that wait or may come back: how to reach them, what they ask for, and what leaves the queue with them.

use super::{Channel, Keys, QueueId, Ticket};
use crate::engine::result::LockResult;
use crate::lock::record::{Id, OwnerBuf};
use crate::lock::request::{Request, Share};
use crate::lock::time::{Micros, MonotonicMicros};
use std::rc::Rc;

/// The shape of the reply to a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplyShape {
    #[default]
    Token,
    /// The token and the predecessor: `DETAILS`.
    Details,
}

/// How to reach a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Handle<H> {
    /// A client that the server keeps blocked.
    Blocked {
        /// How to answer it.
        handle: H,
        /// The server's number for the client.
        client: u64,
    },
    /// An attempt that waits without a connection and is notified on a channel.
    Channel {
        channel: Rc<Channel>,
        /// With `SESSION`, the connection whose end ends the wait.
        session: Option<u64>,
        /// When it was last sent.
        sent: MonotonicMicros,
    },
}

/// An attempt that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter<H> {
    /// How to reach it.
    pub handle: Handle<H>,
    /// How many others may hold the lock too.
    pub share: Share,
    /// The lease that it asks for.
    pub lease: Micros,
    /// The attempt.
    pub id: Option<Id>,
    /// A label.
    pub owner: Option<OwnerBuf>,
    pub shape: ReplyShape,
    /// Whether the grant ends with the connection.
    pub session: bool,
    /// Whether it takes the holder's result instead of the lock.
    pub wants_result: bool,
    /// When its attempt began to wait; if the wait was interrupted, when its first command began to wait.
    pub since: MonotonicMicros,
    /// When its wait ends.
    pub until: MonotonicMicros,
}

impl<H> Waiter<H> {
    /// Its request. An attempt that is notified on a channel first gets a short lease, and is not named in the key:
    /// only its claim shows that it is still there.
    #[must_use]
    pub fn request(&self, until_claimed: Micros) -> Request<'_> {
        match self.handle {
            Handle::Blocked { .. } => {
                let owner = self.owner.as_ref().map(OwnerBuf::as_owner);
                Request { share: self.share, lease: self.lease, id: self.id, owner }
            }
            Handle::Channel { .. } => Request { share: self.share, lease: until_claimed, id: None, owner: None },
        }
    }

    /// The blocked client.
    #[must_use]
    pub const fn client(&self) -> Option<u64> {
        match self.handle {
            Handle::Blocked { client, .. } => Some(client),
            Handle::Channel { .. } => None,
        }
    }

    /// The channel on which it is notified.
    #[must_use]
    pub const fn channel(&self) -> Option<&Rc<Channel>> {
        match &self.handle {
            Handle::Blocked { .. } => None,
            Handle::Channel { channel, .. } => Some(channel),
        }
    }
}

/// A waiter that left the queue.
#[derive(Debug)]
pub struct Gone<H> {
    pub waiter: Waiter<H>,
    /// Its keys, if its end is announced on a channel.
    pub keys: Option<Keys>,
    /// Whether its place is reserved, so that the attempt may continue.
    pub is_kept: bool,
    /// The result that it gets.
    pub result: Option<Rc<LockResult>>,
}

/// The result of joining a queue.
#[derive(Debug)]
pub struct Joined<H> {
    /// The queue that it joined.
    pub queue: Option<QueueId>,
    /// Earlier waiters with the same ID, which no longer wait: the newer command replaces them.
    pub earlier: Vec<Gone<H>>,
    /// Whether it resumed a reserved place.
    pub resumed: bool,
}

/// What a client waits for.
#[derive(Debug)]
pub struct Wait {
    pub ticket: Ticket,
    /// How many others may hold the lock too.
    pub share: Share,
    /// The keys' database.
    pub db: i32,
    pub keys: Keys,
}

/// How many holders a queue's waiters allow: see [`super::Queues::narrows`].
#[derive(Debug, Default)]
pub struct Narrows(pub(super) Vec<(Ticket, u64)>);

impl Narrows {
    /// The fewest holders that `share` and the waiters ahead of a ticket allow; without a ticket, all waiters of the
    /// queue.
    #[must_use]
    pub fn before(&self, ticket: Option<Ticket>, share: Share) -> u64 {
        let ahead = self.0.partition_point(|(step, _)| ticket.is_none_or(|ticket| *step < ticket));
        let last = ahead.checked_sub(1).and_then(|at| self.0.get(at));
        last.map_or(share.most(), |(_, fewest)| share.most().min(*fewest))
    }
}

/// A place reserved for an attempt that does not wait.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The attempt.
    pub id: Id,
    /// When its reservation ends.
    pub until: MonotonicMicros,
    /// When the attempt began to wait; `None` if it never did.
    pub since: Option<MonotonicMicros>,
    /// Whether its last command took the holder's result instead of the lock.
    pub wants_result: bool,
}

/// The waiters that will leave the queue once the hand-off is written: it is decided as if they had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    Nobody,
    One(Ticket),
    /// Those that get the holder's result: blocked clients, or `all`.
    Wanting {
        all: bool,
    },
}
