use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::breaker::Breaker;
use super::fairness::Claiming;
use super::{ConcurrencyLimit, Lane, QueuedEvent};

/// For how long after a pause only a few of a listener's rows are claimed. The poller is woken when the pause
/// is over, so a backlog is found within this time; rows that come later are new.
const CAUTION: Duration = Duration::from_secs(1);

/// What one listener has in flight.
#[derive(Debug)]
pub(super) struct ListenerLoad {
    pub(super) limit: ConcurrencyLimit,
    pub(super) hot: LaneLoad,
    pub(super) cold: LaneLoad,
    /// Bytes of all these.
    pub(super) bytes: usize,
    pub(super) running: usize,
    /// Events that wait until another call ends.
    pub(super) parked: VecDeque<QueuedEvent>,
    pub(super) breaker: Breaker,
    /// Whether its subscription is paused.
    pub(super) is_paused: bool,
    pub(super) claiming: Claiming,
}

/// The rows of a listener that came through one lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LaneLoad {
    /// Claimed and not settled, or about to be inserted.
    pub(super) in_flight: usize,
    /// Those of them that have a place in the queue.
    pub(super) queued: usize,
}

impl ListenerLoad {
    pub(super) fn new(limit: ConcurrencyLimit) -> Self {
        Self {
            limit,
            hot: LaneLoad::default(),
            cold: LaneLoad::default(),
            bytes: 0,
            running: 0,
            parked: VecDeque::new(),
            breaker: Breaker::Closed,
            is_paused: false,
            claiming: Claiming::Open,
        }
    }

    fn lane(&self, lane: Lane) -> &LaneLoad {
        match lane {
            Lane::Hot => &self.hot,
            Lane::Cold => &self.cold,
        }
    }

    pub(super) fn lane_mut(&mut self, lane: Lane) -> &mut LaneLoad {
        match lane {
            Lane::Hot => &mut self.hot,
            Lane::Cold => &mut self.cold,
        }
    }

    /// Returns how many more of its rows may be in flight through a queue of `places`. A listener with a
    /// concurrency limit must not fill the queues for the others, and a backlog must not be claimed for a probe
    /// only to be released.
    pub(super) fn capacity(&self, lane: Lane, places: usize, now: Instant) -> usize {
        let load = self.lane(lane);
        let few = (places / 8).max(1);
        let by_limit = match self.limit.calls {
            None => usize::MAX,
            Some(limit) => few.saturating_add(limit).saturating_sub(load.in_flight),
        };
        match (self.breaker, lane) {
            _ if self.is_paused => 0,
            (breaker, _) if breaker.is_halted(now) => 0,
            (Breaker::Closed | Breaker::Probing { .. }, _) => by_limit,
            (Breaker::Open { .. }, Lane::Hot) => 1_usize.saturating_sub(load.queued),
            (Breaker::Open { until, .. }, Lane::Cold) if until + CAUTION > now => {
                few.saturating_sub(load.queued)
            }
            (Breaker::Open { .. }, Lane::Cold) => by_limit,
        }
    }
}
