//! No listener takes everything while others exist.
//!
//! A call that runs cannot be interrupted, so a worker must be free *before* another listener's event
//! arrives. With more than one listener, an eighth of the workers is therefore kept for listeners that
//! have no call running, and each listener may have at most seven eighths of the queue places and of the
//! bytes that the others leave. A listener without others is not restricted.

use std::time::{Duration, Instant};

use super::listener::ListenerLoad;
use super::{ClaimBudget, Lane, Limits, State};

/// The most that one listener may take of something: seven eighths, but at least one.
pub(super) fn most_of(all: usize) -> usize {
    all.saturating_sub((all / 8).max(1)).max(all.min(1))
}

/// The sooner of two times, if there is one.
pub(super) fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// For how long the poller waits for a listener that has used up its portion, and for enough room in
/// the cold queue to be worth a claim.
///
/// A listener that is merely busy frees some of it within milliseconds. To leave it out costs claims of
/// its own when it returns, so only a slow one is left out.
const GRACE: Duration = Duration::from_millis(100);

/// Whether the poller claims a listener's events, as far as its portion goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claiming {
    Open,
    /// Its portion is used up. Nothing is claimed, for a short while.
    Crowded {
        since: Instant,
    },
    /// The events of the others are claimed without its own.
    LeftOut,
}

/// What one listener may have of something that is counted: queue places, or bytes in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portion {
    own: usize,
    most: usize,
    pub(super) free: usize,
    /// Less than this is not worth a claim.
    worthwhile: usize,
}

impl Portion {
    /// The portion of a listener that has `own` of what is used: seven eighths of what the others leave.
    pub(super) fn new(all: usize, used: usize, own: usize) -> Self {
        let left = all.saturating_add(own).saturating_sub(used);
        let most = most_of(left);
        Self { own, most, free: most.saturating_sub(own), worthwhile: (left / 4).max(1) }
    }

    /// The same if this much is worth a claim already.
    pub(super) fn or_worth(mut self, claim: usize) -> Self {
        self.worthwhile = self.worthwhile.min(claim).max(1);
        self
    }

    /// Whether the listener is the reason why nothing can be claimed.
    fn is_crowded(&self) -> bool {
        self.own > 0 && self.free < self.worthwhile
    }

    fn is_roomy(&self) -> bool {
        self.free >= (self.most / 2).max(1)
    }
}

impl Claiming {
    pub(super) fn next(self, portions: [Portion; 2], now: Instant) -> Self {
        let crowded = portions.iter().any(Portion::is_crowded);
        match self {
            // Each return costs claims of its own, so it must be worth them.
            Self::LeftOut if !portions.iter().all(Portion::is_roomy) => Self::LeftOut,
            Self::LeftOut | Self::Open | Self::Crowded { .. } if !crowded => Self::Open,
            Self::Crowded { since } if now.saturating_duration_since(since) >= GRACE => {
                Self::LeftOut
            }
            Self::Crowded { since } => Self::Crowded { since },
            Self::LeftOut | Self::Open => Self::Crowded { since: now },
        }
    }

    /// How long a crowded listener is waited for yet.
    pub(super) fn grace_left(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Crowded { since } => Some((since + GRACE).saturating_duration_since(now)),
            Self::Open | Self::LeftOut => None,
        }
    }
}

impl State {
    /// Whether there is nothing to share.
    pub(super) fn is_alone(&self) -> bool {
        self.groups.len() < 2
    }

    /// Whether a call of a listener may begin now.
    pub(super) fn may_begin(&self, index: usize, limits: &Limits, now: Instant) -> bool {
        let Some(group) = self.groups.get(index) else { return true };
        group.may_run(now)
            && (!group.in_tx || self.in_tx < limits.transactions)
            && self.has_worker_for(group, limits.workers)
    }

    /// The last eighth of the workers is for listeners that have none.
    fn has_worker_for(&self, group: &ListenerLoad, workers: usize) -> bool {
        self.is_alone() || group.running == 0 || self.running < most_of(workers)
    }

    /// When the cold queue has had too little room for some time, a small claim is better than none: the
    /// next row may be of a listener that is not slow. Not more often, as each costs a statement. Gives
    /// since when there has been too little room, if that claim is made.
    pub(super) fn settle_for_less(
        &self,
        room: &mut ClaimBudget,
        batch: usize,
        now: Instant,
    ) -> Option<Instant> {
        let crowded = room.lane == 0;
        if self.is_alone() || crowded || room.lane >= room.worthwhile(batch) {
            return None;
        }
        let since = self.short_of_room.unwrap_or(now);
        let left = (since + GRACE).saturating_duration_since(now);
        if left.is_zero() {
            room.places = room.lane;
            return Some(now);
        }
        room.changes_in = sooner(room.changes_in, Some(left));
        Some(since)
    }

    /// Whether a listener may have a place in the hot queue for so many bytes. A payload that is larger
    /// than its portion is alone in flight.
    pub(super) fn has_hot_place_for(
        &self,
        group: &ListenerLoad,
        bytes: usize,
        limits: &Limits,
    ) -> bool {
        if self.is_alone() {
            return true;
        }
        let used = self.lanes.used(Lane::Hot);
        let places = Portion::new(limits.hot, used, group.hot.queued);
        let memory = Portion::new(limits.bytes, self.bytes, group.bytes);
        places.free > 0 && (memory.free >= bytes || group.bytes == 0)
    }
}
