use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Entry, Lane};

/// How much of the node a listener may have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Share {
    /// How many calls may run at once; `None` leaves it to the number of workers.
    pub(crate) calls: Option<usize>,
    /// Whether each call has a transaction of the application's.
    pub(crate) in_tx: bool,
}

/// The load of one listener.
#[derive(Debug)]
pub(super) struct Group {
    /// How many calls may run at once; `None` leaves it to the number of workers.
    pub(super) limit: Option<usize>,
    /// Whether each call has a transaction of the application's.
    pub(super) in_tx: bool,
    /// How many of its rows are in hand, by the lane they came through.
    pub(super) hot: usize,
    pub(super) cold: usize,
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
    /// This one tries it out. No other may start, and no other's end says anything.
    Probing {
        probe: i64,
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
    pub(super) fn new(share: Share) -> Self {
        let Share { calls: limit, in_tx } = share;
        let (hot, cold, running, parked) = (0, 0, 0, VecDeque::new());
        Self { limit, in_tx, hot, cold, running, parked, breaker: Breaker::Closed }
    }

    /// One more or one less of its rows is in hand.
    pub(super) fn hold(&mut self, lane: Lane) {
        *self.held(lane) += 1;
    }

    pub(super) fn let_go(&mut self, lane: Lane) {
        let held = self.held(lane);
        *held = held.saturating_sub(1);
    }

    fn held(&mut self, lane: Lane) -> &mut usize {
        match lane {
            Lane::Hot => &mut self.hot,
            Lane::Cold => &mut self.cold,
        }
    }

    /// Whether a call may begin.
    pub(super) fn may_run(&self, sequence: i64) -> bool {
        match self.breaker {
            Breaker::Probing { probe, .. } => probe == sequence,
            Breaker::Closed | Breaker::Open { .. } => {
                self.limit.is_none_or(|limit| self.running < limit)
            }
        }
    }

    /// Takes out the first of those that wait and may begin. If its calls are all taken, none may, and a
    /// transaction that is free is for another listener.
    pub(super) fn unpark(&mut self) -> Option<Entry> {
        let next = self.parked.iter().position(|entry| self.may_run(entry.sequence))?;
        self.parked.remove(next)
    }

    /// How many more of its rows may be in hand through a lane of so many places. A listener that
    /// takes only some calls at a time must not fill the lanes for the others.
    pub(super) fn room(&self, lane: Lane, places: usize) -> usize {
        let held = match lane {
            Lane::Hot => self.hot,
            Lane::Cold => self.cold,
        };
        match (self.breaker, self.limit) {
            (Breaker::Closed, None) => usize::MAX,
            (Breaker::Closed, Some(limit)) => {
                (places / 8).max(1).saturating_add(limit).saturating_sub(held)
            }
            (Breaker::Open { .. } | Breaker::Probing { .. }, _) => 0,
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

    /// A row is gone. If it was to try the breaker out, another one must.
    pub(super) fn lost(&mut self, sequence: i64, now: Instant) {
        if let Breaker::Probing { probe, failures } = self.breaker
            && probe == sequence
        {
            self.breaker = Breaker::Open { until: now, failures };
        }
    }
}
