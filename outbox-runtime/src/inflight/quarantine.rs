//! Events whose last owner was lost.
//!
//! One of them may have been the reason, and the others were only beside it. So none of them begins
//! before that is written into its row: whoever finds it abandoned once more knows that it was not just
//! waiting. One that was lost for the first time may be tried beside others; after that each is tried
//! alone, so that the next loss tells which it was.

use std::collections::HashSet;

use super::row::{ClaimedRow, Trial};
use super::{InFlight, Phase, QueuedEvent, State};
use crate::store::{Claim, Verdict};

impl ClaimedRow {
    /// Its beginning is written down, and its end is not: were this node lost now, nobody could tell
    /// that it has come through.
    fn is_tried(&self) -> bool {
        self.trial == Trial::Begun
    }

    /// A result that says that it was not begun, although its beginning is written down: this node lives,
    /// so that has to be taken back.
    pub(super) fn given_back(&self, result: Verdict) -> Verdict {
        match result {
            Verdict::Released if self.is_tried() => Verdict::Cancelled,
            Verdict::Postponed { delay } if self.is_tried() => Verdict::Deferred { delay },
            result => result,
        }
    }
}

impl InFlight {
    /// Which of some rows may be tried now. For those who lend them to somebody.
    pub(crate) fn may_be_tried(&self, rows: &[Claim]) -> HashSet<i64> {
        self.lock().may_be_tried(rows)
    }
}

impl State {
    pub(super) fn wants_renewal(&self, trials: usize) -> bool {
        !self.short.is_empty() || !self.next_trials(trials).is_empty()
    }

    /// Those that may be tried now, when at most so many are tried at once.
    pub(super) fn next_trials(&self, most: usize) -> Vec<i64> {
        if self.suspects.is_empty() || matches!(self.phase, Phase::Paused | Phase::Closed) {
            return Vec::new();
        }
        let tried: Vec<&ClaimedRow> = self.held.values().filter(|held| held.is_tried()).collect();
        if tried.iter().any(|held| held.takeovers > 1) {
            return Vec::new();
        }
        let takeovers =
            |entry: &QueuedEvent| self.held.get(&entry.sequence).map_or(0, |held| held.takeovers);
        // One whose listener takes only some calls at a time might wait for its turn after it began.
        let may_wait = |entry: &QueuedEvent| {
            let limit = entry.group.and_then(|group| self.groups.get(group)?.limit);
            limit.is_some() && tried.iter().any(|held| held.group == entry.group)
        };
        let beside = self.suspects.iter().filter(|entry| takeovers(entry) == 0 && !may_wait(entry));
        let free = most.saturating_sub(tried.len());
        let mut next: Vec<i64> = beside.take(free).map(|entry| entry.sequence).collect();
        if next.is_empty() && tried.is_empty() {
            next.extend(self.suspects.first().map(|entry| entry.sequence));
        }
        next
    }

    /// Which of some rows may be tried beside what is in hand; at most one of those that must be alone.
    fn may_be_tried(&self, rows: &[Claim]) -> HashSet<i64> {
        let mut tried = self.held.values().filter(|held| held.is_tried());
        if tried.clone().any(|held| held.takeovers > 1) {
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

    /// Those whose beginning is written down do begin.
    pub(super) fn begin_trials(&mut self) {
        let held = &self.held;
        let begun = |entry: &mut QueuedEvent| {
            held.get(&entry.sequence).is_none_or(|held| held.trial == Trial::Begun)
        };
        let begun: Vec<QueuedEvent> = self.suspects.extract_if(.., begun).collect();
        begun.into_iter().for_each(|entry| self.lanes.push_ready(entry));
    }
}
