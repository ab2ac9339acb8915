//! Carries decisions out: the only place that writes keys, and it always tells the engine what came of it.

use super::edge::{Edge, Key, Permit, Span, WriteRefused};
use super::entry::Entry;
use crate::engine::grant::{Decision, Event, Granted};
use crate::engine::queue::Ticket;
use crate::engine::Caller;
use crate::lock::change::Change;
use crate::lock::time::Micros;

/// Who has got the lock, or the locks, when all is written.
pub(super) enum Then<'g> {
    /// Nobody.
    Nobody,
    /// The caller: it is told what the engine adds.
    Caller(Caller, &'g mut Granted),
    /// Somebody who waited.
    Waiter(Ticket, Granted),
}

/// A key, open, and what was decided of its lock.
pub(super) struct Decided<'n, E: Edge> {
    pub(super) name: E::Name<'n>,
    pub(super) key: E::Key<'n>,
    pub(super) decision: Decision,
}

/// How many of several keys were written before the server refused one.
pub(super) struct Partly {
    pub(super) written: usize,
    pub(super) refused: WriteRefused,
}

impl<E: Edge> Entry<'_, E> {
    /// Carries a decision about one key out.
    ///
    /// # Errors
    /// Why it was not written: nothing has changed then.
    pub(super) fn carry_out(
        &mut self,
        permit: Permit,
        decided: Decided<'_, E>,
        then: Then<'_>,
    ) -> Result<(), WriteRefused> {
        let key = self.edge.key_name(decided.name);
        let signal = self.write(permit, decided)?;
        self.tell(key.db, &[key.name], then);
        self.signal(signal);
        Ok(())
    }

    /// Carries decisions about several keys of a database out: all are written before anybody is told of one.
    ///
    /// # Errors
    /// How many were written, and why the next was not.
    pub(super) fn carry_all_out(
        &mut self,
        permit: Permit,
        all: Vec<Decided<'_, E>>,
        then: Then<'_>,
    ) -> Result<(), Partly> {
        let names: Vec<_> = all.iter().map(|decided| self.edge.key_name(decided.name)).collect();
        let db = names.first().map_or(0, |name| name.db);
        let mut signals = Vec::with_capacity(all.len());
        let mut result = Ok(());
        for (written, decided) in all.into_iter().enumerate() {
            if result.is_err() {
                decided.decision.not_written();
                continue;
            }
            match self.write(permit, decided) {
                Ok(signal) => signals.push(signal),
                Err(refused) => result = Err(Partly { written, refused }),
            }
        }
        if result.is_ok() {
            let names: Vec<&[u8]> = names.iter().map(|name| name.name).collect();
            self.tell(db, &names, then);
        }
        // What has changed is told also where a key after it was refused.
        for signal in signals {
            self.signal(signal);
        }
        result
    }

    /// Writes a key and tells the engine.
    #[allow(clippy::type_complexity, reason = "it goes to `signal` as it is")]
    fn write<'n>(
        &mut self,
        permit: Permit,
        decided: Decided<'n, E>,
    ) -> Result<(Option<E::Written<'n>>, &'static [Event]), WriteRefused> {
        let Decided { name, mut key, decision } = decided;
        let before = key.shape();
        let written = match decision.write() {
            None => {
                drop(key);
                None
            }
            Some(write) => {
                let (retentions, now) = (self.edge.retentions(), key.now());
                let change = Change::of(write, key.contents(), &retentions, now);
                match self.edge.write(permit, key, change) {
                    Ok(written) => Some(written),
                    Err(refused) => {
                        decision.not_written();
                        return Err(refused);
                    }
                }
            }
        };
        let events = decision.events();
        let name = self.edge.key_name(name);
        self.engine().told(decision, name, before);
        Ok((written, events))
    }

    fn tell(&mut self, db: i32, names: &[&[u8]], then: Then<'_>) {
        let clock = self.edge.clock();
        match then {
            Then::Nobody => {}
            Then::Caller(caller, granted) => self.engine().granted_to_caller(db, names, caller, granted, clock),
            Then::Waiter(ticket, granted) => {
                let waited = self.engine().granted_to_waiter(ticket, granted, clock);
                self.record(Span::Wait, waited);
            }
        }
    }

    fn signal(&mut self, (written, events): (Option<E::Written<'_>>, &[Event])) {
        if let Some(written) = written {
            self.edge.signal(written, events);
        }
    }

    pub(super) fn record(&mut self, span: Span, took: Option<Micros>) {
        if let Some(took) = took {
            self.edge.record(span, took);
        }
    }

    /// Deletes keys whose only grants have ended, and for which nobody waits. Whether all were deleted.
    pub(super) fn delete_all(&mut self, all: Vec<Decided<'_, E>>) -> bool {
        let wanted = all.len();
        let names: Vec<_> = all.iter().map(|decided| self.edge.key_name(decided.name)).collect();
        let (keys, decisions): (Vec<_>, Vec<_>) = all.into_iter().map(|one| (one.key, one.decision)).unzip();
        let shapes: Vec<_> = keys.iter().map(Key::shape).collect();
        let written = self.edge.delete_all(keys);
        let deleted = written.len();
        let mut events = Vec::with_capacity(deleted);
        for (at, ((decision, name), before)) in decisions.into_iter().zip(names).zip(shapes).enumerate() {
            if at < deleted {
                events.push(decision.events());
                self.engine().told(decision, name, before);
            } else {
                decision.not_written();
            }
        }
        for (written, events) in written.into_iter().zip(events) {
            self.edge.signal(written, events);
        }
        deleted == wanted
    }
}
