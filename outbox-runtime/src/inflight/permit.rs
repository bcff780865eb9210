use std::sync::Arc;
use std::time::Instant;

use super::listener::Breaker;
use super::row::{ClaimedRow, Stage, Trial};
use super::{InFlight, Lane, Phase, QueuedEvent};
use crate::event::EventEnvelope;
use crate::store::Verdict;

/// A place in the hot lane for a row that is about to be inserted. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Permit {
    inflight: Arc<InFlight>,
    group: Option<usize>,
    bytes: usize,
    /// The lease counts from before the row was inserted.
    anchor: Instant,
    taken: bool,
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPermit {
    /// The lane, the listener's share of it, or the memory budget is used up.
    Full,
    /// The listener is paused or being probed, or the node is not running.
    Closed,
}

impl InFlight {
    /// A place for an event of so many bytes. `already` is how many its transaction has.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        bytes: usize,
        group: Option<usize>,
        already: usize,
    ) -> Result<Permit, NoPermit> {
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return Err(NoPermit::Closed);
        }
        if already >= (self.limits.hot / 4).max(1)
            || state.lanes.used(Lane::Hot) >= self.limits.hot
            || state.bytes + bytes > self.limits.bytes
        {
            return Err(NoPermit::Full);
        }
        let anchor = state.clock.now();
        if let Some(known) = group.and_then(|group| state.groups.get(group)) {
            let no_room = known.room(Lane::Hot, self.limits.hot, anchor) == 0;
            if no_room && known.breaker != Breaker::Closed {
                return Err(NoPermit::Closed);
            }
            if no_room || !state.has_hot_place_for(known, bytes, &self.limits) {
                return Err(NoPermit::Full);
            }
        }
        if let Some(group) = group.and_then(|group| state.groups.get_mut(group)) {
            group.hot.in_flight += 1;
            group.bytes += bytes;
        }
        state.occupy(group, Lane::Hot);
        state.bytes += bytes;
        drop(state);
        Ok(Permit { inflight: Arc::clone(self), group, bytes, anchor, taken: false })
    }
}

impl Permit {
    /// The row is committed: its event takes the place. `false` if the node has closed meanwhile;
    /// the row must then be given back by the caller.
    pub(crate) fn take(mut self, sequence: i64, envelope: EventEnvelope) -> bool {
        let inflight = Arc::clone(&self.inflight);
        let mut state = inflight.lock();
        if state.phase == Phase::Closed {
            drop(state);
            return false;
        }
        if state.held.contains_key(&sequence) {
            // The transaction was open for longer than its lease, and our own poller was faster.
            drop(state);
            return true;
        }
        self.taken = true;
        let held = ClaimedRow {
            token: 1,
            event_id: Some(envelope.event_id()),
            lease_until: self.anchor + inflight.limits.lease,
            since: state.clock.now(),
            stage: Stage::Queued,
            trial: Trial::Spared,
            attempts: 0,
            takeovers: 0,
            bytes: self.bytes,
            group: self.group,
            lane: Lane::Hot,
            again: None,
        };
        state.held.insert(sequence, held);
        let entry = QueuedEvent {
            sequence,
            attempts: 0,
            envelope,
            first_claim: true,
            group: self.group,
            lane: Lane::Hot,
            place: None,
        };
        if state.phase == Phase::Paused {
            state.give_back(entry, Verdict::Released);
            drop(state);
            inflight.results.notify_one();
        } else {
            state.lanes.push(entry);
            drop(state);
            inflight.work.notify_one();
        }
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.inflight.lock();
        state.vacate(self.group, Lane::Hot);
        state.let_go(self.group, Lane::Hot, self.bytes);
        drop(state);
        self.inflight.room.notify_one();
        self.inflight.settled.notify_waiters();
    }
}
