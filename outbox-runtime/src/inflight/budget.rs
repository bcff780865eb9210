//! How much the poller may claim.

use std::time::{Duration, Instant};

use super::fairness::{Claiming, Portion, sooner};
use super::{InFlight, Lane, Limits, State};

/// How much the poller may claim.
#[derive(Debug, Default)]
pub(crate) struct ClaimBudget {
    /// Free places in the cold queue, or 0 if they are not to be filled now.
    pub(crate) free_places: usize,
    /// All places except those of listeners whose events are not claimed.
    pub(super) all_places: usize,
    /// The most rows, so that no listener gets more than its portion.
    pub(crate) rows: usize,
    /// The most bytes.
    pub(crate) bytes: usize,
    /// For each listener, whether its events may be claimed.
    pub(crate) open: Vec<bool>,
    /// When the budget changes by itself: the pause of a listener ends, or a listener is left out.
    pub(crate) changes_in: Option<Duration>,
    /// When the pause of a listener ends. Of all changes this alone matters while nothing is due.
    pub(crate) reopens_in: Option<Duration>,
}

impl ClaimBudget {
    /// Returns the least number of free places that is worth a claim.
    pub(crate) fn worthwhile(&self, batch: usize) -> usize {
        (self.all_places / 2).min(batch).max(1)
    }
}

/// A budget, and what a claim under it changes.
#[derive(Debug, Default)]
struct Survey {
    budget: ClaimBudget,
    /// For each listener.
    claiming: Vec<Claiming>,
    short_of_capacity: Option<Instant>,
}

impl InFlight {
    /// Returns what may be claimed now, and changes nothing.
    pub(crate) fn claim_budget(&self) -> ClaimBudget {
        self.lock().survey(&self.limits).budget
    }

    /// Returns what a claim that starts now may take. A listener that is too slow is left out of the next ones,
    /// and a small claim is not allowed again for a while.
    pub(crate) fn start_claim(&self) -> ClaimBudget {
        let mut state = self.lock();
        let Survey { budget, claiming, short_of_capacity } = state.survey(&self.limits);
        for (load, claiming) in state.listeners.iter_mut().zip(claiming) {
            load.claiming = claiming;
        }
        if state.may_add() {
            state.short_of_capacity = short_of_capacity;
        }
        budget
    }

    /// Waits until there may be capacity for more.
    pub(crate) async fn capacity_freed(&self) {
        self.capacity.notified().await;
    }

    /// Returns the number of listeners whose circuit breaker is open or being probed. A half-open one does not
    /// count: its next event is delivered.
    pub(crate) fn paused_listeners(&self) -> usize {
        let state = self.lock();
        let now = state.clock.now();
        state.listeners.iter().filter(|load| load.breaker.is_halted(now)).count()
    }
}

impl State {
    fn survey(&self, limits: &Limits) -> Survey {
        let now = self.clock.now();
        if !self.may_add() {
            return Survey::default();
        }
        let Limits { cold, batch, .. } = *limits;
        let (used, bytes) = (self.queue.used(Lane::Cold), self.bytes);
        let alone = self.is_alone();
        let free_places = cold.saturating_sub(used);
        let mut budget = ClaimBudget {
            free_places,
            all_places: cold,
            rows: free_places,
            ..ClaimBudget::default()
        };
        budget.bytes = limits.bytes.saturating_sub(bytes);
        let mut each = Vec::with_capacity(self.listeners.len());
        for load in &self.listeners {
            let mut free = load.capacity(Lane::Cold, cold, now);
            // Either a claim that is worth its statement, or none.
            let mut open = free >= (cold / 16).max(1);
            let mut claiming = load.claiming;
            if !alone {
                let places = Portion::new(cold, used, load.cold.queued).or_worth(batch);
                let memory = Portion::new(limits.bytes, bytes, load.bytes);
                claiming = claiming.next([places, memory], now);
                open &= claiming != Claiming::LeftOut;
                free = free.min(places.free);
                if open {
                    budget.bytes = budget.bytes.min(memory.free);
                }
            }
            let pause = load.breaker.paused_for(now);
            let wait = pause.or(claiming.grace_left(now).filter(|_| open));
            if open && matches!(claiming, Claiming::Crowded { .. }) {
                budget.free_places = 0;
            }
            budget.changes_in = sooner(budget.changes_in, wait);
            budget.reopens_in = sooner(budget.reopens_in, pause);
            budget.open.push(open);
            each.push(claiming);
            if open {
                budget.rows = budget.rows.min(free);
            } else {
                budget.all_places = budget.all_places.saturating_sub(load.cold.queued);
            }
        }
        let short_of_capacity = self.allow_small_claim(&mut budget, batch, now);
        Survey { budget, claiming: each, short_of_capacity }
    }
}
