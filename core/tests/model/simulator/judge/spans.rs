//! The grants that clients may rely on across a change of master, in true time, whatever each server believes.

use super::{Asked, Share};
use crate::fake::OwnedKeyName;

#[derive(Debug)]
struct Span {
    token: u64,
    place: OwnedKeyName,
    is_plain: bool,
    /// The end, in true time.
    until: u64,
    reign: u64,
    conn: u64,
    session: bool,
    /// Whether its connection has ended, which another master may never find out.
    has_ended: bool,
}

/// Grants of all masters.
#[derive(Debug, Default)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// Called when a master granted a lock: no client of an earlier master may still count on another grant.
    pub fn granted(&mut self, asked: &Asked, token: u64, reign: u64, now: u64) {
        self.0.retain(|span| span.until > now);
        for place in &asked.places {
            let others = self.0.iter().filter(|span| span.place == *place && span.reign != reign);
            let is_beside_plain = others.clone().any(|span| span.is_plain);
            let count = others.count();
            // An exclusive holder excludes everyone; the limit is the caller's.
            if is_beside_plain || count >= asked.share.most() {
                let others: Vec<&Span> = self.0.iter().filter(|span| span.place == *place).collect();
                panic!("two hold {place:?} at {now}: {asked:?} got {token} from master {reign} beside {others:?}");
            }
            self.0.push(Span {
                token,
                place: place.clone(),
                is_plain: asked.share == Share::Alone,
                until: now + asked.lease,
                reign,
                conn: asked.conn,
                session: asked.session,
                has_ended: false,
            });
        }
    }

    /// Called when a grant was extended or reported again: nobody else may have the lock in the meantime.
    pub fn extended(
        &mut self,
        token: u64,
        places: &[OwnedKeyName],
        lease: u64,
        may_be_shorter: bool,
        reign: u64,
        now: u64,
    ) {
        let is_own = |span: &Span| {
            span.token == token && places.contains(&span.place) && (!span.has_ended || span.reign == reign)
        };
        let own = self.0.iter().filter(|span| is_own(span));
        let own: Vec<(OwnedKeyName, bool)> = own.map(|span| (span.place.clone(), span.is_plain)).collect();
        for (place, is_plain) in own {
            let beside = self.0.iter().find(|span| {
                let is_other = span.token != token && span.place == place && span.until > now;
                is_other && span.reign != reign && (span.is_plain || is_plain)
            });
            if let Some(beside) = beside {
                panic!("two hold {place:?} at {now}: {token} continues at master {reign} beside {beside:?}");
            }
        }
        for span in self.0.iter_mut().filter(|span| is_own(span)) {
            span.until = if may_be_shorter { now + lease } else { span.until.max(now + lease) };
            span.has_ended = false;
            // From now on this master has to keep the grant, by its own clock.
            span.reign = reign;
        }
    }

    /// Called when a grant is reported again: it ends with the newer connection, or with no connection.
    pub fn belongs_to(&mut self, asked: &Asked, token: u64) {
        let own = self.0.iter_mut().filter(|span| span.token == token && asked.places.contains(&span.place));
        for span in own {
            (span.conn, span.session) = (asked.conn, asked.session);
        }
    }

    /// Called when an earlier master's grant is extended while that master may still grant: nobody may count on it.
    pub fn is_risked(&mut self, token: u64, places: &[OwnedKeyName], reign: u64) {
        self.0.retain(|span| span.token != token || span.reign == reign || !places.contains(&span.place));
    }

    /// Called when a grant is given up.
    pub fn ended(&mut self, token: u64) {
        self.0.retain(|span| span.token != token);
    }

    /// Called when a connection has ended: its holder has the margin to notice that.
    pub fn connection_ended(&mut self, conn: u64, margin: u64, now: u64) {
        for span in self.0.iter_mut().filter(|span| span.session && span.conn == conn) {
            span.until = span.until.min(now + margin);
            span.has_ended = true;
        }
    }

    /// Called when somebody changed a key: the grants that clients counted on there are void.
    pub fn void(&mut self, place: &OwnedKeyName) {
        self.0.retain(|span| span.place != *place);
    }
}
