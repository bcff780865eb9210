//! Events whose last owner was lost.
//!
//! One of them may have been the cause, and the others were only in flight beside it. So none of them starts
//! before that start is recorded in its row: a node that finds it abandoned once more knows that it was not just
//! waiting. An event that lost its owner for the first time may be tried beside others; after that each is tried
//! alone, so that the next loss shows which one was the cause.

use std::collections::HashSet;

use super::row::ClaimedRow;
use super::{InFlight, QueuedEvent, State};
use crate::event::Verdict;
use crate::store::Claim;

/// Suspects that have not started yet.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    pub(super) waiting: Vec<QueuedEvent>,
}

/// Whether a row may be the reason why its last owner was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspicion {
    None,
    /// It may be, and does not start before its start is recorded.
    Suspect,
    /// Its start is recorded in the row, so that it may run. If this node is lost before the verdict is recorded,
    /// the next one counts it as an owner lost with the event.
    StartRecorded,
}

impl Suspicion {
    /// Changes a verdict that says that the row was not started, although its start is recorded. This node
    /// lives, so the recorded start has to be taken back.
    pub(super) fn adjust(self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Released if self == Self::StartRecorded => Verdict::Cancelled,
            Verdict::Postponed { delay } if self == Self::StartRecorded => {
                Verdict::Deferred { delay }
            }
            verdict => verdict,
        }
    }
}

impl ClaimedRow {
    fn has_recorded_start(&self) -> bool {
        self.suspicion == Suspicion::StartRecorded
    }
}

impl InFlight {
    /// Returns which of some claimed rows may be tried now; for rows that a `PollerHandler` works on.
    pub(crate) fn may_be_tried(&self, rows: &[Claim]) -> HashSet<i64> {
        self.lock().may_be_tried(rows)
    }
}

impl State {
    pub(super) fn needs_renewal(&self, suspects: usize) -> bool {
        !self.expiring.is_empty() || !self.next_suspects(suspects).is_empty()
    }

    /// Returns the suspects that may be tried now, at most `most` at once.
    pub(super) fn next_suspects(&self, most: usize) -> Vec<i64> {
        let waiting = &self.quarantine.waiting;
        if waiting.is_empty() || !self.may_call() {
            return Vec::new();
        }
        let tried: Vec<&ClaimedRow> =
            self.rows.values().filter(|row| row.has_recorded_start()).collect();
        if tried.iter().any(|row| row.takeovers > 1) {
            return Vec::new();
        }
        let takeovers =
            |event: &QueuedEvent| self.rows.get(&event.sequence).map_or(0, |row| row.takeovers);
        // An event of a listener with a concurrency limit might have to wait after its start was recorded.
        let may_wait = |event: &QueuedEvent| {
            let load = self.listener(event.listener);
            load.is_some_and(|load| load.limit.calls.is_some())
                && tried.iter().any(|row| row.listener == event.listener)
        };
        let beside = waiting.iter().filter(|event| takeovers(event) == 0 && !may_wait(event));
        let free = most.saturating_sub(tried.len());
        let mut next: Vec<i64> = beside.take(free).map(|event| event.sequence).collect();
        if next.is_empty() && tried.is_empty() {
            next.extend(waiting.first().map(|event| event.sequence));
        }
        next
    }

    /// Returns which of some rows may be tried beside those in flight; at most one of those that must be alone.
    fn may_be_tried(&self, rows: &[Claim]) -> HashSet<i64> {
        let mut tried = self.rows.values().filter(|row| row.has_recorded_start());
        if tried.clone().any(|row| row.takeovers > 1) {
            return HashSet::new();
        }
        let suspects = || rows.iter().filter(|row| row.is_suspect());
        let mut next: HashSet<i64> =
            suspects().filter(|row| row.takeovers == 0).map(|row| row.sequence).collect();
        if next.is_empty() && tried.next().is_none() {
            next.extend(suspects().next().map(|row| row.sequence));
        }
        next
    }

    /// Queues the suspects whose start is recorded.
    pub(super) fn queue_started(&mut self) {
        let rows = &self.rows;
        let is_tried = |event: &mut QueuedEvent| {
            rows.get(&event.sequence).is_none_or(ClaimedRow::has_recorded_start)
        };
        let tried: Vec<QueuedEvent> = self.quarantine.waiting.extract_if(.., is_tried).collect();
        tried.into_iter().for_each(|event| self.queue.push_ready(event));
    }
}
