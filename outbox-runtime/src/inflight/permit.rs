use std::sync::Arc;
use std::time::Instant;

use super::breaker::Breaker;
use super::row::ClaimedRow;
use super::{InFlight, Lane, Phase, QueuedEvent};
use crate::event::{EventEnvelope, Verdict};
use crate::listener::ListenerId;

/// A place in the hot queue, reserved for a row that is about to be inserted. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Permit {
    inflight: Arc<InFlight>,
    listener: Option<ListenerId>,
    bytes: usize,
    /// The lease counts from before the row was inserted.
    anchor: Instant,
    redeemed: bool,
}

/// Why no place could be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPermit {
    /// The queue, the listener's portion of it, or the memory budget is used up.
    Full,
    /// The circuit breaker of the listener is open or being probed, or the node is not running or stands by.
    NotAccepting,
}

/// What became of a permit after the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Redeemed {
    /// The event is in flight: through this permit, or because our own poller was faster.
    InFlight,
    /// The node has closed since the reservation; the caller has to release the row.
    Closed,
}

impl InFlight {
    /// Reserves a place for an event of `bytes`. `permits` is the number that its transaction holds already.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        bytes: usize,
        listener: Option<ListenerId>,
        permits: usize,
    ) -> Result<Permit, NoPermit> {
        let mut state = self.lock();
        if !state.may_add() {
            return Err(NoPermit::NotAccepting);
        }
        if permits >= self.limits.hot_per_transaction
            || state.queue.used(Lane::Hot) >= self.limits.hot
            || state.bytes + bytes > self.limits.bytes
        {
            return Err(NoPermit::Full);
        }
        let anchor = state.clock.now();
        if let Some(load) = state.listener(listener) {
            let is_full = load.capacity(Lane::Hot, self.limits.hot, anchor) == 0;
            if is_full && (load.is_paused || load.breaker != Breaker::Closed) {
                return Err(NoPermit::NotAccepting);
            }
            if is_full || !state.has_hot_place_for(load, bytes, &self.limits) {
                return Err(NoPermit::Full);
            }
        }
        if let Some(load) = state.listener_mut(listener) {
            load.hot.in_flight += 1;
            load.bytes += bytes;
        }
        state.occupy(listener, Lane::Hot);
        state.bytes += bytes;
        drop(state);
        Ok(Permit { inflight: Arc::clone(self), listener, bytes, anchor, redeemed: false })
    }
}

impl Permit {
    /// The row is committed: its event takes the reserved place.
    pub(crate) fn redeem(mut self, sequence: i64, envelope: EventEnvelope) -> Redeemed {
        let inflight = Arc::clone(&self.inflight);
        let mut state = inflight.lock();
        if state.phase == Phase::Closed {
            drop(state);
            return Redeemed::Closed;
        }
        if state.rows.contains_key(&sequence) {
            // The transaction was open for longer than its lease, and our own poller was faster.
            drop(state);
            return Redeemed::InFlight;
        }
        self.redeemed = true;
        let lease_until = inflight.limits.lease.until(self.anchor);
        let row = ClaimedRow::hot(&envelope, self.listener, lease_until, state.clock.now());
        state.rows.insert(sequence, ClaimedRow { bytes: self.bytes, ..row });
        let event = QueuedEvent::hot(sequence, envelope, self.listener);
        if !state.may_call() || state.is_paused(self.listener) {
            state.give_back(event, Verdict::Released);
            drop(state);
            inflight.results.notify_one();
        } else {
            state.queue.push(event);
            drop(state);
            inflight.work.notify_one();
        }
        Redeemed::InFlight
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.redeemed {
            return;
        }
        let mut state = self.inflight.lock();
        state.vacate(self.listener, Lane::Hot);
        state.free(self.listener, Lane::Hot, self.bytes);
        drop(state);
        self.inflight.capacity.notify_one();
        self.inflight.settled.notify_waiters();
    }
}
