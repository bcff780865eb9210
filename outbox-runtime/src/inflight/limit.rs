//! How many calls may run at once.

use std::time::Instant;

use super::fairness::most_of;
use super::load::ListenerLoad;
use super::{Limits, State};
use crate::listener::ListenerId;

/// How many calls of a listener may run at once, in this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConcurrencyLimit {
    /// `None` leaves it to the number of workers.
    pub(crate) calls: Option<usize>,
    /// Whether each call holds a transaction of the application's pool.
    pub(crate) in_tx: bool,
}

impl ConcurrencyLimit {
    pub(super) fn allows(self, running: usize) -> bool {
        self.calls.is_none_or(|limit| running < limit)
    }
}

impl State {
    /// Returns whether a call of a listener may start now.
    pub(super) fn may_start(&self, listener: ListenerId, limits: &Limits, now: Instant) -> bool {
        let Some(load) = self.listener(Some(listener)) else { return true };
        !load.breaker.is_halted(now)
            && load.limit.allows(load.running)
            && (!load.limit.in_tx || self.in_tx < limits.transactions)
            && self.has_worker_for(load, limits.workers)
    }

    /// The last eighth of the workers is reserved for listeners that have no call running.
    fn has_worker_for(&self, load: &ListenerLoad, workers: usize) -> bool {
        self.is_alone() || load.running == 0 || self.running < most_of(workers)
    }
}
