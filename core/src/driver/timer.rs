//! The timer: ends waits, and gives locks that came free by themselves, or by other means, to the first waiter. Each
//! event-loop iteration does a bounded amount of work; the timer comes back for the rest.

use super::edge::{Access, Edge, Expected, Key, Permit, Unseen, WriteRefused};
use super::entry::Entry;
use super::notify::Reached;
use super::parked::Tried;
use super::release::{end, left};
use super::write::Then;
use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::grant::Decision;
use crate::engine::outstanding::Lost;
use crate::engine::queue::{Of, QueueId};
use crate::engine::sessions::LockKey;
use crate::engine::{gone_at, Clock, Conditions, Engine, Found, Iteration, KeyName, Successor, Task, Why};
use crate::lock::held;
use crate::lock::time::{Micros, UnixMicros};
use crate::lock::token::Token;

/// How many grants pass on and lines are checked in one iteration. It ends earlier when its budget is spent: a piece of
/// work can be a set of holders that has to be read as a whole.
const PER_ITERATION: usize = 128;
/// When a line is checked again whose attempts wait for memory.
const OUT_OF_MEMORY: Micros = Micros(100_000);

/// What came of the first waiter of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// It was granted the lock.
    Granted,
    /// Nobody was.
    Nobody,
    /// Nothing is granted now to attempts that are told on a channel, and it is one.
    NotNow,
}

impl<E: Edge> Entry<'_, E> {
    /// The timer fires.
    pub fn timer_fired(&mut self) {
        // A timer that has fired must not be stopped.
        self.state().timer = None;
        let (limits, clock) = (self.edge.limits(), self.edge.clock());
        let is_out_of_memory = !self.engine().claims().is_empty() && self.edge.is_out_of_memory();
        let mut budget = Budget::ITERATION;
        {
            let mut engine = self.engine();
            engine.renew_events();
            engine.leave_unserved(&mut budget);
            engine.leave_ended(&mut budget, limits, clock);
            budget.part(|part| engine.end_unclaimed(part, is_out_of_memory, limits, clock));
            budget.part(|part| engine.time_out(part, limits, clock));
        }
        self.sweep_leases(&mut budget);
        let begun = self.engine().begin_iteration(&mut budget, clock);
        if let Some(iteration) = begun {
            self.iterate(iteration, budget);
        }
    }

    fn iterate(&mut self, mut iteration: Iteration, mut budget: Budget) {
        let clock = self.edge.clock();
        let Some(permit) = self.permit() else {
            self.end_queues_of_lost_slots(&mut budget);
            self.engine().postpone(clock);
            return;
        };
        for _ in 0..PER_ITERATION {
            if !budget.is_left(self.edge.clock()) {
                break;
            }
            let task = self.engine().next_task(&mut iteration, &mut budget, clock);
            let Some(task) = task else { break };
            if self.see_to(permit, &task, &mut budget) == Err(WriteRefused::ForNow) {
                self.engine().refused_for_now(task, &mut iteration, clock);
            }
        }
        self.engine().end_iteration(&iteration, clock);
    }

    /// Whether the server lets the module write now, outside of a command.
    fn permit(&mut self) -> Option<Permit> {
        (self.edge.may_write() && self.may_grant().is_ok()).then_some(Permit::TIMER)
    }

    fn see_to(&mut self, permit: Permit, task: &Task, budget: &mut Budget) -> Result<(), WriteRefused> {
        match task {
            Task::PassOn(lost) => self.pass_on_lost(permit, lost, budget),
            Task::EndSession((key, token), at) => self.end_session(permit, key, *token, *at),
            Task::Serve(queue, why) => {
                let reported = self.engine().reported();
                let is_granted = self.try_queue(permit, *queue, budget)?;
                // Not missed is an expiry that the server notices, and reports, when the key is opened.
                if is_granted && *why == Why::Scan && self.engine().reported() == reported {
                    self.engine().count(Counter::MissedWakeups);
                }
                Ok(())
            }
        }
    }

    /// Passes on a grant that nobody received, if it still stands: to the next in line, or by releasing it.
    fn pass_on_lost(&mut self, permit: Permit, lost: &Lost, budget: &mut Budget) -> Result<(), WriteRefused> {
        let key_name = KeyName { db: lost.db, name: lost.name() };
        let Some(name) = self.edge.name(key_name) else { return Ok(()) };
        let (name, now) = (E::lend(&name), self.edge.clock().now());
        let Ok(mut key) = self.edge.open(name, Access::Waiter, Expected::Grant(lost.token), now) else { return Ok(()) };
        if !held::stands(key.lock(), &lost.written.record(lost.token)) {
            return Ok(());
        }
        end(&mut key, lost.token);
        // As if the grant had never been: the next holder has to learn of a predecessor that never released.
        let before = lost.succeeds.as_ref();
        let terms = self.edge.terms();
        let left = left(&mut key, before);
        let has_to_restore = left.is_none();
        let queue = self.engine().awaited_queue(key_name);
        let successor = queue.zip(left).and_then(|(queue, left)| {
            let successor = self.successor(queue, (lost.token, left), terms, now, budget)?;
            Some((queue, successor))
        });
        if let Some((queue, successor)) = successor {
            return self.give(permit, queue, key_name, key, successor, budget);
        }
        let decision = Engine::<E::Handle>::to_end(lost.token, before, has_to_restore);
        self.carry_out(permit, key_name, key, decision, Then::Nobody)?;
        self.engine().set_key_ready(key_name);
        Ok(())
    }

    /// Ends the grant of a connection that ended: its timestamp becomes that time plus the margin.
    fn end_session(
        &mut self,
        permit: Permit,
        lock: &LockKey,
        token: Token,
        at: UnixMicros,
    ) -> Result<(), WriteRefused> {
        let key_name = KeyName { db: lock.0, name: &lock.1 };
        let Some(name) = self.edge.name(key_name) else { return Ok(()) };
        let (name, terms, now) = (E::lend(&name), self.edge.terms(), self.edge.clock().now());
        let Ok(key) = self.edge.open(name, Access::Waiter, Expected::Grant(token), now) else { return Ok(()) };
        let Some(record) = held::end_session(key.lock(), token, terms, at) else { return Ok(()) };
        let (decision, until) = (Decision::to_end_session(&record), record.timestamp);
        self.carry_out(permit, key_name, key, decision, Then::Nobody)?;
        self.engine().cut_short((lock.clone(), token), until, now);
        Ok(())
    }

    /// Checks the lock of a line for its first waiter. Returns whether it was granted. The others follow after earlier
    /// waiters of other lines.
    fn try_queue(&mut self, permit: Permit, queue: QueueId, budget: &mut Budget) -> Result<bool, WriteRefused> {
        match self.serve_first(permit, queue, Of::All, budget)? {
            Served::Granted => Ok(true),
            Served::Nobody => Ok(false),
            Served::NotNow => {
                // A claim would be refused for want of memory. Clients that are blocked behind have nothing to claim.
                let is_granted = self.serve_first(permit, queue, Of::Blocked, budget)? == Served::Granted;
                let again = self.edge.clock().now().after(OUT_OF_MEMORY);
                let mut engine = self.engine();
                engine.try_again_by(queue, again);
                if is_granted {
                    engine.go_on(queue);
                }
                Ok(is_granted)
            }
        }
    }

    fn serve_first(
        &mut self,
        permit: Permit,
        queue: QueueId,
        of: Of,
        budget: &mut Budget,
    ) -> Result<Served, WriteRefused> {
        let key = self.engine().queues().key(queue);
        let Some((db, bytes)) = key else { return Ok(Served::Nobody) };
        let key_name = KeyName { db, name: &bytes };
        let Some(name) = self.edge.name(key_name) else { return Ok(Served::Nobody) };
        let (name, now) = (E::lend(&name), self.edge.clock().now());
        let key = match self.edge.open(name, Access::Waiter, Expected::Nothing, now) {
            Ok(key) => key,
            Err(Unseen::NotServed) => {
                self.engine().slot_lost(queue, budget);
                return Ok(Served::Nobody);
            }
            // Waiters wait for a value of another type as for a foreign one.
            Err(Unseen::WrongType | Unseen::TooManyHolders) => {
                let gone_at = gone_at(self.edge.expires_in_ms(name), now);
                self.engine().set_due(queue, gone_at);
                return Ok(Served::Nobody);
            }
        };
        let conditions = Conditions { terms: self.edge.terms(), grace: self.edge.grace(), of, now };
        let mut notified = None;
        let found = loop {
            let found = self.engine().try_to_serve(queue, key.lock(), || key.expires_in_ms(), notified, &conditions);
            let Found::ToCall(ticket) = found else { break found };
            if !budget.is_left(self.edge.clock()) {
                self.engine().go_on(queue);
                return Ok(Served::Nobody);
            }
            match self.call(ticket, budget) {
                Reached::Heard(heard) => notified = Some(heard),
                Reached::Unheard => {}
                Reached::NotNow => return Ok(Served::NotNow),
            }
        };
        match found {
            Found::Grant(successor) => {
                let is_written = successor.decision.write().is_some();
                // If the next in line may share it, this has made the line ready again.
                self.give(permit, queue, key_name, key, successor, budget)?;
                if !is_written {
                    // Its ID already held the lock: for the next in line nothing has changed.
                    self.engine().go_on(queue);
                }
                Ok(Served::Granted)
            }
            Found::Try(ticket) => {
                drop(key);
                let tried = self
                    .try_one(permit, ticket, budget)
                    .inspect_err(|refused| self.slot_lost(queue, *refused, budget))?;
                if tried == Tried::Moved {
                    self.engine().go_on(queue);
                }
                Ok(match tried {
                    Tried::Granted => Served::Granted,
                    Tried::NotNow => Served::NotNow,
                    Tried::Moved | Tried::Stays => Served::Nobody,
                })
            }
            Found::End(ticket, error) => {
                let mut engine = self.engine();
                engine.end_wait(ticket, error);
                engine.go_on(queue);
                Ok(Served::Nobody)
            }
            Found::Nobody | Found::ToCall(_) => Ok(Served::Nobody),
        }
    }

    /// Gives the lock of a line to one of its waiters.
    fn give<'n>(
        &mut self,
        permit: Permit,
        queue: QueueId,
        key_name: KeyName<'n>,
        key: E::Key<'n>,
        successor: Successor,
        budget: &mut Budget,
    ) -> Result<(), WriteRefused> {
        let Successor { ticket, decision, granted, notified } = successor;
        let given = self.carry_out(permit, key_name, key, decision, Then::Waiter(ticket, granted, notified));
        if let Err(refused) = given {
            self.slot_lost(queue, refused, budget);
        }
        given
    }

    fn slot_lost(&mut self, queue: QueueId, refused: WriteRefused, budget: &mut Budget) {
        if refused == WriteRefused::NotOurs {
            self.engine().slot_lost(queue, budget);
        }
    }

    /// Tells waiters that their slot is not served here, even while no lock may be granted.
    fn end_queues_of_lost_slots(&mut self, budget: &mut Budget) {
        if !self.edge.may_lose_slots() {
            return;
        }
        let queues = self.engine().take_ready(PER_ITERATION);
        for queue in queues {
            let key = self.engine().queues().key(queue);
            let name = key.and_then(|(db, bytes)| self.edge.name(KeyName { db, name: &bytes }));
            // The key is not opened: reading many holders for nothing, again and again, takes long.
            let is_lost = name.is_some_and(|name| !self.edge.serves(E::lend(&name)));
            let mut engine = self.engine();
            if is_lost {
                engine.slot_lost(queue, budget);
            } else {
                engine.set_ready(queue);
            }
        }
    }
}
