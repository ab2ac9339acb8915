//! An outsider's knowledge of the grants. This module is written from the contract alone, and shares nothing with the
//! rules that it judges. It sees the server's replies, the blocked connections, and the key.

use crate::clients::Command;
use crate::fake::{Blocked, World};
use redis_lock_core::lock::record::Id;
use redis_lock_core::lock::time::{Micros, UnixMicros};
use redis_lock_core::lock::token::Token;

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
pub enum Violation {
    /// A token is not larger than all earlier ones.
    TokenDidNotGrow,
    /// The lock was granted to a client that came after one that is still waiting.
    Overtook,
    /// The lock was granted while an earlier grant was valid.
    GrantedTwice,
    /// An attempt that holds the lock asked again and did not get its token.
    NotReported,
}

/// A grant, in the server's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Live {
    who: Who,
    token: Token,
    until: UnixMicros,
    /// The connection with which it ends.
    session: Option<u64>,
    /// The earliest time at which the grant may end, because that connection has ended.
    may_end: Option<UnixMicros>,
}

impl Live {
    /// The time until which it is certainly valid.
    fn end(&self) -> UnixMicros {
        self.may_end.map_or(self.until, |end| end.min(self.until))
    }
}

/// The holder of a grant, and its terms.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub who: Who,
    pub token: Token,
    pub session: Option<u64>,
}

/// The notes of an outsider who sees everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    last: Option<Token>,
    live: Option<Live>,
    /// The refused clients in the queue or with a place, in order of arrival, each with its connection.
    arrived: Vec<(Who, u64)>,
    /// Grants that were sent, and whose attempts have not found out about them in another way.
    on_their_way: Vec<(Token, Who)>,
    /// A grant that the server knows nobody received.
    unreceived: Option<Token>,
    pub violation: Option<Violation>,
}

impl Witness {
    /// Called when the server granted the lock, or reported a grant again.
    pub fn granted(&mut self, grant: Grant, world: &World, term: Micros) {
        let Grant { who, token, session } = grant;
        let (now, until) = (world.wall, world.wall.after(term));
        if let Some(live) = self.live.as_mut().filter(|live| (live.token, live.who) == (token, who)) {
            *live = Live { until: live.until.max(until), session, may_end: None, ..*live };
            self.unreceived = self.unreceived.filter(|unreceived| *unreceived != token);
            self.on_their_way.retain(|(own, _)| *own != token);
            return;
        }
        let mut ahead = self.arrived.iter().take_while(|(known, _)| *known != who);
        if ahead.any(|(_, conn)| world.blocked.contains(&Blocked(*conn))) {
            self.violation = Some(Violation::Overtook);
        }
        if self.last.is_some_and(|last| token <= last) {
            self.violation = Some(Violation::TokenDidNotGrow);
        }
        // A grant that nobody received ends when it is passed on.
        if self.live.is_some_and(|live| live.end() > now && self.unreceived != Some(live.token)) {
            self.violation = Some(Violation::GrantedTwice);
        }
        self.last = self.last.max(Some(token));
        self.live = Some(Live { who, token, until, session, may_end: None });
    }

    /// Called when a grant was sent to a waiting client. Returns the client.
    pub fn sent(&mut self, conn: u64, token: Token) -> Who {
        let who = self.arrived.iter().find(|(_, known)| *known == conn).map_or(Who::Conn(conn), |(who, _)| *who);
        self.on_their_way.push((token, who));
        who
    }

    /// Called when LOCK.EXTEND has set a new lease.
    pub fn extended(&mut self, token: Token, until: UnixMicros) {
        if let Some(live) = self.live.as_mut().filter(|live| live.token == token) {
            (live.until, live.may_end) = (until, None);
        }
    }

    /// Called when a grant was released.
    pub fn given_back(&mut self, token: Token) {
        self.live = self.live.filter(|live| live.token != token);
    }

    /// Called when an attempt was cancelled: it holds nothing, and has no place.
    pub fn cancelled(&mut self, id: Id) {
        let who = Who::Attempt(id);
        self.leave(who);
        self.on_their_way.retain(|(_, known)| *known != who);
        self.live = self.live.filter(|live| live.who != who);
    }

    /// Called when a grant reached its client.
    pub fn delivered(&mut self, token: Token) {
        if let Some(at) = self.on_their_way.iter().position(|(known, _)| *known == token) {
            let (_, who) = self.on_their_way.remove(at);
            self.leave(who);
        }
    }

    /// Called when a grant did not reach its client. Returns whether it has to be passed on.
    pub fn undelivered(&mut self, token: Token) -> bool {
        let at = self.on_their_way.iter().position(|(known, _)| *known == token);
        if let Some(at) = at {
            self.on_their_way.remove(at);
            self.unreceived = Some(token);
        }
        at.is_some()
    }

    /// Called when a connection has ended: its holder has the margin to notice that.
    pub fn connection_ended(&mut self, conn: u64, until: UnixMicros) {
        self.leave(Who::Conn(conn));
        if let Some(live) = self.live.as_mut().filter(|live| live.session == Some(conn)) {
            live.may_end = Some(until);
        }
    }

    /// The reply that a command must get if its attempt holds the lock.
    pub fn must_be_reported(&self, command: &Command, now: UnixMicros) -> Option<Token> {
        let who = Who::Attempt(command.id?);
        self.live.filter(|live| live.who == who && live.end() > now).map(|live| live.token)
    }

    /// Attempts that wait or have a place.
    pub fn attempts(&self) -> impl Iterator<Item = Id> + '_ {
        let ids = self.arrived.iter();
        ids.filter_map(|(who, _)| if let Who::Attempt(id) = who { Some(*id) } else { None })
    }

    /// Called when an attempt was refused: it waits, or has a reserved place if it has an ID.
    pub fn arrive(&mut self, who: Who, conn: u64) {
        match self.arrived.iter_mut().find(|(known, _)| *known == who) {
            Some(known) => known.1 = conn,
            None => self.arrived.push((who, conn)),
        }
    }

    /// Called when an attempt has its grant, has given up, or waited without an ID.
    pub fn leave(&mut self, who: Who) {
        self.arrived.retain(|(known, _)| *known != who);
    }

    /// Called when somebody else ran DEL or GETSET: the server no longer knows about a grant.
    pub fn overwritten(&mut self) {
        self.live = None;
        self.unreceived = None;
    }

    /// Whether a grant that nobody received is still valid.
    pub fn is_lost_grant_live(&self) -> bool {
        self.unreceived.is_some_and(|token| self.live.is_some_and(|live| live.token == token))
    }

    /// Forgets the past of an ended grant, which does not distinguish states. `held`: the grant in the key, and its
    /// end.
    pub fn forget(&mut self, now: UnixMicros, held: Option<(Token, UnixMicros)>) {
        let unreceived = self.unreceived;
        // A restored predecessor without its own token has the grant's token, but not its end.
        let is_held = |live: &Live| held.is_some_and(|(token, end)| token == live.token && end >= live.end());
        let is_over = |live: &Live| live.until <= now || (unreceived == Some(live.token) && !is_held(live));
        self.live = self.live.filter(|live| !is_over(live));
        let live = self.live.map(|live| live.token);
        self.unreceived = unreceived.filter(|token| Some(*token) == live);
    }
}
