use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::fairness::Claiming;
use super::{Lane, QueuedEvent};

/// For how long after a pause only a few of a listener's rows are claimed. The poller is woken when the
/// pause ends, so a backlog is met within this time; what comes later is new.
const CAUTION: Duration = Duration::from_secs(1);

/// How much of the node a listener may have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConcurrencyLimit {
    /// How many calls may run at once; `None` leaves it to the number of workers.
    pub(crate) calls: Option<usize>,
    /// Whether each call has a transaction of the application's.
    pub(crate) in_tx: bool,
}

/// The load of one listener.
#[derive(Debug)]
pub(super) struct ListenerLoad {
    /// How many calls may run at once; `None` leaves it to the number of workers.
    pub(super) limit: Option<usize>,
    /// Whether each call has a transaction of the application's.
    pub(super) in_tx: bool,
    pub(super) hot: Load,
    pub(super) cold: Load,
    /// Payload bytes of all these.
    pub(super) bytes: usize,
    pub(super) running: usize,
    /// Those that wait for a call to end.
    pub(super) parked: VecDeque<QueuedEvent>,
    pub(super) breaker: Breaker,
    pub(super) claiming: Claiming,
}

/// A listener's rows that came through one lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Claimed and not settled, or about to be inserted.
    pub(super) in_flight: usize,
    /// Those of them that have a place in the lane.
    pub(super) queued: usize,
}

/// Whether a listener can reach what it talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breaker {
    Closed,
    /// It could not, so many times in a row; nothing is tried until then. After that it is half-open:
    /// the next call is the probe.
    Open {
        until: Instant,
        failures: u32,
    },
    /// This call is the probe. No other may start, and no other's end says anything.
    Probing {
        probe: i64,
        failures: u32,
    },
}

impl Breaker {
    /// Whether events have to wait: until the pause ends, or for the verdict of the probe.
    pub(super) fn is_halted(self, now: Instant) -> bool {
        match self {
            Self::Closed => false,
            Self::Open { until, .. } => until > now,
            Self::Probing { .. } => true,
        }
    }

    /// How long its pause lasts yet, if it is not over.
    pub(super) fn paused_for(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Open { until, .. } if until > now => Some(until.saturating_duration_since(now)),
            Self::Closed | Self::Open { .. } | Self::Probing { .. } => None,
        }
    }
}

/// What a listener's breaker has just done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerStep {
    Opened { failures: u32 },
    Closed,
    Unchanged,
}

impl ListenerLoad {
    pub(super) fn new(share: ConcurrencyLimit) -> Self {
        Self {
            limit: share.calls,
            in_tx: share.in_tx,
            hot: Load::default(),
            cold: Load::default(),
            bytes: 0,
            running: 0,
            parked: VecDeque::new(),
            breaker: Breaker::Closed,
            claiming: Claiming::Open,
        }
    }

    fn load(&self, lane: Lane) -> &Load {
        match lane {
            Lane::Hot => &self.hot,
            Lane::Cold => &self.cold,
        }
    }

    pub(super) fn load_mut(&mut self, lane: Lane) -> &mut Load {
        match lane {
            Lane::Hot => &mut self.hot,
            Lane::Cold => &mut self.cold,
        }
    }

    /// Whether its breaker and its own limit let a call begin.
    pub(super) fn may_run(&self, now: Instant) -> bool {
        !self.breaker.is_halted(now) && self.limit.is_none_or(|limit| self.running < limit)
    }

    /// A call begins. If the breaker is half-open, it is the probe.
    pub(super) fn begin(&mut self, sequence: i64) {
        self.running += 1;
        if let Breaker::Open { failures, .. } = self.breaker {
            self.breaker = Breaker::Probing { probe: sequence, failures };
        }
    }

    /// How many more of its rows may be in flight through a lane of so many places. A listener that
    /// takes only some calls at a time must not fill the lanes for the others, and a backlog must not
    /// be claimed for a probe only to be given back.
    pub(super) fn room(&self, lane: Lane, places: usize, now: Instant) -> usize {
        let load = self.load(lane);
        let few = (places / 8).max(1);
        let by_limit = match self.limit {
            None => usize::MAX,
            Some(limit) => few.saturating_add(limit).saturating_sub(load.in_flight),
        };
        match (self.breaker, lane) {
            (breaker, _) if breaker.is_halted(now) => 0,
            (Breaker::Closed | Breaker::Probing { .. }, _) => by_limit,
            (Breaker::Open { .. }, Lane::Hot) => 1_usize.saturating_sub(load.queued),
            (Breaker::Open { until, .. }, Lane::Cold) if until + CAUTION > now => {
                few.saturating_sub(load.queued)
            }
            (Breaker::Open { .. }, Lane::Cold) => by_limit,
        }
    }

    /// A row is gone. If it was the probe, the next call is.
    pub(super) fn lost(&mut self, sequence: i64, now: Instant) {
        if let Breaker::Probing { probe, failures } = self.breaker
            && probe == sequence
        {
            self.breaker = Breaker::Open { until: now, failures };
        }
    }
}
