//! The clients of the model, and what an outsider knows of who got the lock: written from the contract alone, it
//! shares nothing with the rules that it judges.

use crate::server::{Call, News, Reply, Server};
use redis_lock::lock::record::Id;
use redis_lock::lock::time::{Micros, UnixMicros};
use redis_lock::lock::token::Token;

/// How a client locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// LOCK.*
    Lock { waits: bool, has_ids: bool, session: bool },
    /// SETNX, GET and GETSET, with the time of the end in the key.
    Getset,
    /// SET NX PX, compare and delete.
    SetNxPx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    Asking,
    Holding,
    Extending,
    /// It has sent LOCK.RELEASE or LOCK.CANCEL.
    Leaving,
    /// SETNX said no.
    Refused,
    /// GET said that the lock is expired.
    SawExpired,
    Crashed,
}

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    Acquire(Call),
    Extend(Token),
    Release(Token),
    Cancel(Id),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub phase: Phase,
    /// How many connections it has had before this one.
    pub earlier_conns: u8,
    /// Which attempt to get the lock this is.
    pub attempt: u8,
    /// How often it may still ask.
    pub asks: u8,
    pub token: Option<Token>,
    /// When the command was sent that it waits for the answer of: leases are counted from then.
    pub sent_at: u8,
    /// Until when it believes to hold the lock, by its own watch.
    pub believes_until: u8,
    pub outbox: Option<Sent>,
    pub inbox: Option<Reply>,
}

impl Client {
    pub const fn new(asks: u8) -> Self {
        Self {
            phase: Phase::Idle,
            earlier_conns: 0,
            attempt: 0,
            asks,
            token: None,
            sent_at: 0,
            believes_until: 0,
            outbox: None,
            inbox: None,
        }
    }

    /// The server's number of its connection.
    pub fn conn(&self, who: usize) -> u64 {
        who as u64 * 10 + u64::from(self.earlier_conns) + 1
    }

    /// It closes its connection, with all that is still on the way there, and opens another.
    pub fn reconnect(&mut self) {
        self.earlier_conns += 1;
        self.outbox = None;
        self.inbox = None;
    }

    /// It has given the lock up, or never got it.
    pub fn rest(&mut self) {
        self.phase = Phase::Idle;
        self.token = None;
        self.believes_until = 0;
        self.sent_at = 0;
    }

    /// It reads an answer.
    pub fn read(&mut self, reply: Reply, lease: u8) {
        match (self.phase, reply) {
            (Phase::Asking, Reply::Token(token)) => {
                self.phase = Phase::Holding;
                self.token = Some(token);
                self.believes_until = self.sent_at + lease;
                self.attempt += 1;
            }
            (Phase::Extending, Reply::Number(1)) => {
                self.phase = Phase::Holding;
                self.believes_until = self.sent_at + lease;
            }
            _ => self.rest(),
        }
        self.sent_at = 0;
    }
}

/// An attempt, by its ID or its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    Attempt(Id),
    Conn(u64),
}

impl Who {
    pub fn of(conn: u64, id: Option<Id>) -> Self {
        id.map_or(Self::Conn(conn), Self::Attempt)
    }
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A token is not larger than all before.
    TokenDidNotGrow,
    /// The lock was granted to one who came after somebody who waits.
    Overtook,
    /// The lock was granted while an earlier grant was good.
    GrantedTwice,
    /// An attempt that holds asked again and was not told its token.
    NotTold,
}

/// A grant, by the clock of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Live {
    who: Who,
    token: Token,
    until: UnixMicros,
}

/// What an outsider who sees all has noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    last: Option<Token>,
    live: Option<Live>,
    /// Who was refused and stands in line or has a place, in the order in which they came.
    arrived: Vec<Who>,
    /// A grant that the server knows nobody received.
    unreceived: Option<Token>,
    pub fault: Option<Fault>,
}

impl Witness {
    /// The server did something.
    pub fn see(&mut self, news: &News, server: &Server, term: Micros, now: UnixMicros) {
        match *news {
            News::Granted { conn, id, token } => {
                let who = Who::of(conn, id);
                let ahead = self.arrived.iter().take_while(|known| **known != who);
                let waits = |who: &Who| server.line.waiting().any(|waits| Who::of(waits.conn, waits.id) == *who);
                if ahead.clone().any(waits) {
                    self.fault = Some(Fault::Overtook);
                }
                if self.last.is_some_and(|last| token <= last) {
                    self.fault = Some(Fault::TokenDidNotGrow);
                }
                if self.live.is_some_and(|live| live.until > now) {
                    self.fault = Some(Fault::GrantedTwice);
                }
                self.last = self.last.max(Some(token));
                self.live = Some(Live { who, token, until: now.after(term) });
            }
            News::Renewed { token } => {
                if let Some(live) = self.live.as_mut().filter(|live| live.token == token) {
                    live.until = live.until.max(now.after(term));
                }
                self.unreceived = self.unreceived.filter(|unreceived| *unreceived != token);
            }
            News::Extended { token } => {
                if let Some(live) = self.live.as_mut().filter(|live| live.token == token) {
                    live.until = now.after(term);
                }
            }
            News::Over { token } => self.live = self.live.filter(|live| live.token != token),
            News::CutShort { token, until } => {
                if let Some(live) = self.live.as_mut().filter(|live| live.token == token) {
                    live.until = live.until.min(until);
                }
            }
            News::Undelivered { token } => self.unreceived = Some(token),
            News::Answer { .. } => {}
        }
    }

    /// What a call must be answered, if its attempt holds the lock.
    pub fn must_be_told(&self, call: &Call, now: UnixMicros) -> Option<Token> {
        let who = Who::Attempt(call.id?);
        self.live.filter(|live| live.who == who && live.until > now).map(|live| live.token)
    }

    /// An attempt was refused: it waits, or keeps a place if it has an ID.
    pub fn arrive(&mut self, who: Who) {
        if !self.arrived.contains(&who) {
            self.arrived.push(who);
        }
    }

    /// An attempt has the lock and was told, has given up, or has waited without an ID.
    pub fn leave(&mut self, who: Who) {
        self.arrived.retain(|known| *known != who);
    }

    /// DEL or GETSET by somebody else: the server no longer knows of a grant.
    pub fn overwritten(&mut self) {
        self.live = None;
        self.unreceived = None;
    }

    /// Whether a grant that nobody received stands although it is not about to be passed on.
    pub fn lost_grant_stands(&self, server: &Server) -> bool {
        let stands = |token| self.live.is_some_and(|live| live.token == token) && !server.is_lost(token);
        self.unreceived.is_some_and(stands)
    }

    /// What was true of a grant that is over does not tell states apart.
    pub fn forget(&mut self, now: UnixMicros) {
        self.live = self.live.filter(|live| live.until > now);
        let live = self.live.map(|live| live.token);
        self.unreceived = self.unreceived.filter(|token| Some(*token) == live);
    }
}
