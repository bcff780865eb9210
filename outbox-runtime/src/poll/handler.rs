use std::sync::Arc;
use std::time::Duration;

use crate::event::EventEnvelope;
use crate::hand::{Entry, Hand};
use crate::store::Finished;

/// Takes the place of the dispatcher: receives what the poller has claimed, and finishes each event
/// itself.
pub trait PollerHandler: Send + Sync {
    /// How many events it can take. With zero nothing is claimed.
    fn available_capacity(&self) -> usize;

    /// Takes an event. `false` ends the round: what else was claimed is given back.
    fn handle(&self, claimed: ClaimedEvent, attempts: u32) -> bool;
}

/// An event that this node has claimed. Its lease is renewed for as long as this exists; if it is
/// dropped unfinished, the event returns when the lease has ended.
#[must_use = "finish it with `done`, `retry` or `dead`"]
pub struct ClaimedEvent {
    hand: Arc<Hand>,
    entry: Entry,
    finished: bool,
}

impl std::fmt::Debug for ClaimedEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClaimedEvent").field(&self.entry.envelope).finish()
    }
}

impl ClaimedEvent {
    pub(super) fn new(hand: Arc<Hand>, entry: Entry) -> Self {
        Self { hand, entry, finished: false }
    }

    /// The event.
    pub fn envelope(&self) -> &EventEnvelope {
        &self.entry.envelope
    }

    /// It is delivered.
    pub fn done(self) {
        self.finish(Finished::Done);
    }

    /// It failed, and is to be tried again after a delay.
    pub fn retry(self, delay: Duration, error: impl Into<String>) {
        let attempts = self.entry.attempts.saturating_add(1);
        self.finish(Finished::Retry { attempts, delay, error: error.into() });
    }

    /// It failed for good.
    pub fn dead(self, error: impl Into<String>) {
        let attempts = self.entry.attempts.saturating_add(1);
        self.finish(Finished::Dead { attempts, error: error.into() });
    }

    pub(super) fn release(self) {
        self.finish(Finished::Released);
    }

    fn finish(mut self, result: Finished) {
        self.finished = true;
        self.hand.finish(&self.entry, result);
    }
}

impl Drop for ClaimedEvent {
    fn drop(&mut self) {
        if !self.finished {
            self.hand.abandon(&self.entry);
        }
    }
}
