//! The canonical form of what the module remembers: two engines with the same form behave the same from then on.
//!
//! It leaves out everything that cannot matter: the numbers of tickets and queues beyond their order, counters, derived
//! data, map layout, which sessions were swept last, and the time of the last queue scan if another is due.

use super::engine::Engine;
use super::gate::GateForm;
use super::grant::Before;
use super::outbox::{Answer, AnswerForm, Notice};
use super::outstanding::{EndedForm, OutstandingForm};
use super::queue::{Channel, Order, QueuesForm};
use super::result::KeptForm;
use super::sessions::SessionsForm;
use super::unclaimed::ClaimForm;
use crate::lock::time::{MonotonicMicros, UnixMicros};
use crate::lock::token::{Token, Tokens};

/// The canonical form of an [`Engine`], with the answers that were sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Canonical<H> {
    tokens: Tokens,
    queues: QueuesForm<H>,
    sessions: SessionsForm,
    predecessors: Vec<(MonotonicMicros, Token, Box<[u8]>, Before)>,
    outstanding: OutstandingForm,
    claims: Vec<ClaimForm>,
    kept: Vec<KeptForm>,
    ended: EndedForm,
    gate: GateForm,
    outbox: Vec<(H, AnswerForm)>,
    notices: Vec<(Channel, Vec<u8>, Option<usize>)>,
    sent: Vec<AnswerForm>,
    latest: UnixMicros,
    /// When the queues were last scanned, unless they are due again.
    scanned: Option<MonotonicMicros>,
    postponed: [Option<MonotonicMicros>; 2],
}

impl<H: Clone> Engine<H> {
    /// The canonical form at `now`. `sent`: the answers that may yet arrive or fail; a grant that does not arrive comes
    /// back with its ticket.
    #[must_use]
    pub fn canonical(&self, sent: &[&Answer], now: MonotonicMicros) -> Canonical<H> {
        let is_on_its_way = |token| self.outstanding.is_on_its_way(token);
        let outside = self.outbox.answers().chain(sent.iter().copied());
        let outside = outside.filter_map(|answer| answer.ticket(is_on_its_way)).chain(self.gate.ticket());
        let outside = outside.chain(self.claims.tickets());
        let tickets = Order::of(self.queues.tickets().chain(outside).collect());
        let notice = |notice: &Notice| {
            let claim = notice.claim.map(|ticket| tickets.at(ticket));
            (notice.channel.as_ref().clone(), notice.message(), claim)
        };
        let answer = |answer: &Answer| answer.canonical(&tickets, is_on_its_way);
        Canonical {
            tokens: self.tokens.clone(),
            queues: self.queues.canonical(&tickets),
            sessions: self.sessions.canonical(),
            predecessors: self.predecessors.canonical(),
            outstanding: self.outstanding.canonical(),
            claims: self.claims.canonical(&tickets),
            kept: self.kept.canonical(),
            ended: self.ended.canonical(),
            gate: self.gate.canonical(&tickets),
            outbox: self.outbox.canonical(answer),
            notices: self.outbox.notices().map(notice).collect(),
            sent: sent.iter().map(|sent| answer(sent)).collect(),
            latest: self.latest,
            scanned: Some(self.scanned).filter(|_| !self.has_to_scan(now)),
            postponed: [self.postponed, self.rest_postponed],
        }
    }
}
