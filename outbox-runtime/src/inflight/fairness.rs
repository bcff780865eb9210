//! No listener takes all workers, places or bytes while there are others.
//!
//! A call that runs cannot be interrupted, so a worker must be free *before* another listener's event
//! arrives. With more than one listener, an eighth of the workers is therefore kept for listeners that
//! have no call running, and each listener may have at most seven eighths of the queue places and of the
//! bytes that the others leave. A listener without others is not restricted.

use std::time::{Duration, Instant};

use super::load::ListenerLoad;
use super::{ClaimBudget, Lane, Limits, State};

/// Returns the most that one listener may take of `all`: seven eighths, but at least one.
pub(crate) fn most_of(all: usize) -> usize {
    all.saturating_sub((all / 8).max(1)).max(all.min(1))
}

/// Returns the sooner of two times, if there is one.
pub(super) fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// For how long the poller waits for a listener that has used up its portion, and for enough free
/// places in the cold queue to be worth a claim.
///
/// A listener that is merely busy frees some of it within milliseconds. Leaving it out costs claims of its own
/// when it returns, so only a slow one is left out.
const GRACE: Duration = Duration::from_millis(100);

/// Whether the poller claims a listener's events, as far as its portion goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claiming {
    Open,
    /// Its portion is used up. Nothing is claimed for a short time.
    Crowded {
        since: Instant,
    },
    /// The events of the others are claimed without its own.
    LeftOut,
}

/// How much one listener may have of a resource: queue places, or bytes in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portion {
    own: usize,
    most: usize,
    pub(super) free: usize,
    /// Less than this is not worth a claim.
    worthwhile: usize,
}

impl Portion {
    /// Returns the portion of a listener that has `own` of the `used` part: seven eighths of what the others
    /// leave.
    pub(super) fn new(all: usize, used: usize, own: usize) -> Self {
        let left = all.saturating_add(own).saturating_sub(used);
        let most = most_of(left);
        Self { own, most, free: most.saturating_sub(own), worthwhile: (left / 4).max(1) }
    }

    /// Returns the same portion if `claim` is worth a claim already.
    pub(super) fn or_worth(mut self, claim: usize) -> Self {
        self.worthwhile = self.worthwhile.min(claim).max(1);
        self
    }

    /// Returns whether the listener is the reason why nothing can be claimed.
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

    /// Returns how much longer the poller waits for a crowded listener.
    pub(super) fn grace_left(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Crowded { since } => Some((since + GRACE).saturating_duration_since(now)),
            Self::Open | Self::LeftOut => None,
        }
    }
}

impl State {
    /// Returns whether there is only one listener, so that nothing has to be shared.
    pub(super) fn is_alone(&self) -> bool {
        self.listeners.len() < 2
    }

    /// Allows a small claim when the cold queue has had too few free places for some time: the next row may be
    /// of a listener that is not slow. Not more often, because each claim costs a statement. Returns since when
    /// there have been too few, if that claim is made.
    pub(super) fn allow_small_claim(
        &self,
        budget: &mut ClaimBudget,
        batch: usize,
        now: Instant,
    ) -> Option<Instant> {
        let is_crowded = budget.free_places == 0;
        if self.is_alone() || is_crowded || budget.free_places >= budget.worthwhile(batch) {
            return None;
        }
        let since = self.short_of_capacity.unwrap_or(now);
        let left = (since + GRACE).saturating_duration_since(now);
        if left.is_zero() {
            budget.all_places = budget.free_places;
            return Some(now);
        }
        budget.changes_in = sooner(budget.changes_in, Some(left));
        Some(since)
    }

    /// Returns whether a listener may have a place in the hot queue for an event of `bytes`. An event that is
    /// larger than its portion has to be alone in flight.
    pub(super) fn has_hot_place_for(
        &self,
        load: &ListenerLoad,
        bytes: usize,
        limits: &Limits,
    ) -> bool {
        if self.is_alone() {
            return true;
        }
        let used = self.queue.used(Lane::Hot);
        let places = Portion::new(limits.hot, used, load.hot.queued);
        let memory = Portion::new(limits.bytes, self.bytes, load.bytes);
        places.free > 0 && (memory.free >= bytes || load.bytes == 0)
    }
}
