use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Entry;

/// The load of one listener.
#[derive(Debug)]
pub(super) struct Group {
    /// How many calls may run at once; `None` leaves it to the number of workers.
    pub(super) limit: Option<usize>,
    /// How many of its rows are in hand.
    pub(super) held: usize,
    pub(super) running: usize,
    /// Those that wait for a call to end.
    pub(super) parked: VecDeque<Entry>,
    pub(super) breaker: Breaker,
}

/// Whether a listener can reach what it talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breaker {
    Closed,
    /// It could not, so many times in a row; nothing is tried until then.
    Open {
        until: Instant,
        failures: u32,
    },
    /// One event tries it out.
    Probing {
        failures: u32,
    },
}

/// What a listener's breaker has just done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerStep {
    Opened { failures: u32 },
    Closed,
    Unchanged,
}

impl Group {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self { limit, held: 0, running: 0, parked: VecDeque::new(), breaker: Breaker::Closed }
    }

    /// Whether another call may begin.
    pub(super) fn may_run(&self) -> bool {
        let limit = match self.breaker {
            Breaker::Probing { .. } => Some(1),
            Breaker::Closed | Breaker::Open { .. } => self.limit,
        };
        limit.is_none_or(|limit| self.running < limit)
    }

    /// How many more of its rows may be in hand. A listener that takes only some calls at a time
    /// must not fill the lanes for the others.
    pub(super) fn room(&self, lane: usize) -> usize {
        match (self.breaker, self.limit) {
            (Breaker::Closed, None) => usize::MAX,
            (Breaker::Closed, Some(limit)) => {
                (lane / 4).max(1).saturating_add(limit).saturating_sub(self.held)
            }
            (Breaker::Open { .. }, _) => 0,
            (Breaker::Probing { .. }, _) => 1usize.saturating_sub(self.held),
        }
    }

    /// Whether it has been paused, and the pause is over.
    pub(super) fn wants_probe(&self, now: Instant) -> bool {
        matches!(self.breaker, Breaker::Open { until, .. } if until <= now)
    }

    /// How long its pause lasts yet.
    pub(super) fn paused_for(&self, now: Instant) -> Option<Duration> {
        match self.breaker {
            Breaker::Open { until, .. } => Some(until.saturating_duration_since(now)),
            Breaker::Closed | Breaker::Probing { .. } => None,
        }
    }
}
