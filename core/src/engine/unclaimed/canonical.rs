//! The canonical form of an unclaimed grant, for comparison.

use super::{Claim, Claims, Leaves};
use crate::engine::grant::Granted;
use crate::engine::queue::{Channel, Order, Ticket};
use crate::lock::record::Id;
use crate::lock::request::Share;
use crate::lock::time::MonotonicMicros;

/// The canonical form of a [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimForm {
    ticket: usize,
    granted: Granted,
    place: (i32, Vec<Box<[u8]>>),
    attempt: (Id, Share, bool),
    channel: Channel,
    session: Option<u64>,
    times: (MonotonicMicros, MonotonicMicros),
    released: usize,
    was_refused: bool,
    leaves: Option<Leaves>,
}

impl Claims {
    /// All tickets, in order.
    pub fn tickets(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.all.keys().copied()
    }

    /// The canonical form. It leaves out when an attempt began to wait, which affects no decision, and state that lasts
    /// no longer than a command.
    #[must_use]
    pub fn canonical(&self, tickets: &Order<Ticket>) -> Vec<ClaimForm> {
        let form = |(ticket, claim): (&Ticket, &Claim)| {
            let Claim {
                granted,
                db,
                keys,
                id,
                share,
                wants_result,
                channel,
                session,
                sent,
                since: _,
                deadline,
                was_refused,
                released,
                is_end_announced: _,
                leaves,
            } = claim;
            ClaimForm {
                ticket: tickets.at(*ticket),
                granted: granted.clone(),
                place: (*db, keys.iter().map(Box::from).collect()),
                attempt: (*id, *share, *wants_result),
                channel: channel.as_ref().clone(),
                session: *session,
                times: (*sent, *deadline),
                was_refused: *was_refused,
                released: *released,
                leaves: *leaves,
            }
        };
        self.all.iter().map(form).collect()
    }
}
