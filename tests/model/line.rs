//! The queue of the one key of the model, as plain data: it can be compared, hashed and sent to another thread.
//!
//! For each step the real [`Queues`] is built from it, does the step, and is taken apart again. What is not kept is
//! what the queue does not promise to keep: the numbers of tickets beyond their order.

use redis_lock::engine::queue::{LineId, MostPlaces, Queues, ReplyShape, Ticket, Waiter};
use redis_lock::lock::record::Id;
use redis_lock::lock::rules::Share;
use redis_lock::lock::time::{Micros, MonotonicMicros, UnixMicros};
use redis_lock::lock::token::Token;
use std::collections::BTreeMap;

pub const DB: i32 = 0;
pub const KEY: &[u8] = b"door";

/// Ends of waits and places have no time in the model: each can come at any moment.
pub const NOW: MonotonicMicros = MonotonicMicros(1);
pub const NEVER: MonotonicMicros = MonotonicMicros(u64::MAX);
/// More places than are ever kept.
pub const MOST_PLACES: MostPlaces = MostPlaces { keys: 100, bytes: 0 };
/// IDs of attempts are smaller.
pub const MOST_IDS: u64 = 10;

pub fn id(number: u64) -> Id {
    Id::parse(number.to_string().as_bytes()).unwrap()
}

/// A client that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waits {
    pub conn: u64,
    pub id: Option<Id>,
    pub session: bool,
    pub lease: Micros,
}

impl Waits {
    pub fn with_end(&self, until: MonotonicMicros) -> Waiter<()> {
        let Self { conn: client, id, session, lease } = *self;
        let since = MonotonicMicros(0);
        Waiter {
            handle: (),
            client,
            share: Share::Alone,
            lease,
            id,
            owner: None,
            shape: ReplyShape::Token,
            session,
            since,
            until,
        }
    }

    pub fn of(waiter: &Waiter<()>) -> Self {
        Self { conn: waiter.client, id: waiter.id, session: waiter.session, lease: waiter.lease }
    }
}

/// What a ticket is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stand {
    Waits(Waits),
    Place(Id),
    /// It was granted the lock with that token and is not known to have been told.
    Granted(Token),
}

/// Whose time is over in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Nobodys,
    Wait(u64),
    Place(Id),
}

/// All that stand in line, in the order of their tickets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    pub stands: Vec<Stand>,
    pub due: Option<UnixMicros>,
    pub is_ready: bool,
}

/// Tickets of grants on their way.
pub type Tickets = BTreeMap<Token, Ticket>;

impl Line {
    /// Those who wait, in order.
    pub fn waiting(&self) -> impl Iterator<Item = &Waits> {
        self.stands.iter().filter_map(|stand| if let Stand::Waits(waits) = stand { Some(waits) } else { None })
    }

    pub fn is_empty(&self) -> bool {
        self.stands.is_empty()
    }

    /// Does a step with the real queue.
    pub fn step<R>(&mut self, over: Over, body: impl FnOnce(&mut Queues<()>, &mut Tickets) -> R) -> R {
        let mut queues = Queues::default();
        let mut tickets = Tickets::new();
        let end = |ends| if ends { NOW } else { NEVER };
        for stand in &self.stands {
            match stand {
                Stand::Waits(waits) => {
                    queues.join(DB, &[KEY], 0, waits.with_end(end(over == Over::Wait(waits.conn))));
                }
                Stand::Place(id) => {
                    queues.keep_place(DB, &[KEY], *id, end(over == Over::Place(*id)), MOST_PLACES);
                }
                Stand::Granted(token) => {
                    let nobody = id(MOST_IDS);
                    queues.keep_place(DB, &[KEY], nobody, NEVER, MOST_PLACES);
                    tickets.insert(*token, queues.forget(DB, KEY, nobody).unwrap().0);
                }
            }
        }
        if let Some(line) = queues.line(DB, KEY) {
            queues.set_due(line, self.due);
            if self.is_ready {
                queues.set_ready(line);
            }
        }
        let result = body(&mut queues, &mut tickets);
        self.take_apart(&mut queues, tickets);
        result
    }

    fn take_apart(&mut self, queues: &mut Queues<()>, tickets: Tickets) {
        self.due = queues.next_due();
        self.is_ready = queues.take_ready().is_some();
        let mut stands: Vec<(Ticket, Stand)> = Vec::new();
        stands.extend(tickets.into_iter().map(|(token, ticket)| (ticket, Stand::Granted(token))));
        for number in 1..MOST_IDS {
            if let Some((ticket, waiter)) = queues.forget(DB, KEY, id(number)) {
                let stand = waiter.map_or(Stand::Place(id(number)), |waiter| Stand::Waits(Waits::of(&waiter)));
                stands.push((ticket, stand));
            }
        }
        while let Some((ticket, waiter)) = line(queues).and_then(|line| queues.pop_head(line)) {
            stands.push((ticket, Stand::Waits(Waits::of(&waiter))));
        }
        assert!(queues.is_empty(), "all that stands in line is known");
        stands.sort_by_key(|(ticket, _)| *ticket);
        self.stands = stands.into_iter().map(|(_, stand)| stand).collect();
    }
}

/// The line of the key, if somebody waits in it.
pub fn line(queues: &Queues<()>) -> Option<LineId> {
    queues.waited_line(DB, KEY)
}
