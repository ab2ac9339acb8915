//! A holder releases or extends its grant: what is counted, and what is remembered about the grant.

use crate::engine::budget::Budget;
use crate::engine::counters::Counter;
use crate::engine::sessions::LockKey;
use crate::engine::{Clock, Engine, KeyName};
use crate::lock::held::Release;
use crate::lock::time::UnixMicros;
use crate::lock::token::Token;

impl<H> Engine<H> {
    /// Counts the outcome of a LOCK.RELEASE.
    pub fn count_release(&mut self, release: Release) {
        self.count(match release {
            Release::InTime => Counter::Releases,
            Release::Late => Counter::LateReleases,
            Release::Over => Counter::StaleTokens,
        });
    }

    /// Whether a holder with only the margin left has overrun its lease. It has not if nobody has claimed the grant, or
    /// if its session had ended.
    #[must_use]
    pub fn counts_as_overrun(&self, key: KeyName<'_>, token: Token) -> bool {
        let has_ended = self.sessions.has_ended(key, token) || self.ended.has(key, token);
        !has_ended && !self.cut_short.has(key, token) && !self.is_unclaimed(key, token)
    }

    /// Called when a grant was cut short because its connection ended.
    pub fn cut_short(&mut self, grant: (LockKey, Token), until: UnixMicros, now: UnixMicros) {
        self.cut_short.add(grant, until, now);
    }

    /// Called on each server tick: forgets some of the grant data that is kept for a limited time.
    pub fn forget_old(&mut self, clock: impl Clock) {
        let mut budget = Budget::of(Budget::PART);
        self.predecessors.forget_piece(clock.monotonic(), &mut budget);
        let mut budget = Budget::of(Budget::PART);
        self.cut_short.forget_piece(clock.now(), &mut budget);
    }

    /// Called when a grant was extended: it no longer counts as cut short.
    pub fn extended(&mut self, key: KeyName<'_>, token: Token) {
        self.cut_short.extended(key, token);
    }

    /// Called when a grant was released: later tokens are larger.
    pub fn given_back(&mut self, token: Token, now: UnixMicros) {
        self.tokens.given_back(now, token);
    }
}
