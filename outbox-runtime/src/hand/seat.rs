use std::sync::Arc;
use std::time::Instant;

use super::group::Breaker;
use super::held::{Held, Stage, Trial};
use super::{Entry, Hand, Lane, Phase};
use crate::event::EventEnvelope;
use crate::store::Finished;

/// A place in the hot lane for a row that is about to be inserted. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct HotSeat {
    hand: Arc<Hand>,
    group: Option<usize>,
    bytes: usize,
    /// The lease counts from before the row was inserted.
    anchor: Instant,
    taken: bool,
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSeat {
    /// The lane, the listener's share of it, or the memory budget is used up.
    Full,
    /// The listener is paused or being probed, or the node is not running.
    Closed,
}

impl Hand {
    /// A place for an event of so many bytes. `already` is how many its transaction has.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        bytes: usize,
        group: Option<usize>,
        already: usize,
    ) -> Result<HotSeat, NoSeat> {
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return Err(NoSeat::Closed);
        }
        if already >= (self.limits.hot / 4).max(1)
            || state.lanes.used(Lane::Hot) >= self.limits.hot
            || state.bytes + bytes > self.limits.bytes
        {
            return Err(NoSeat::Full);
        }
        let anchor = state.clock.now();
        if let Some(known) = group.and_then(|group| state.groups.get(group)) {
            let no_room = known.room(Lane::Hot, self.limits.hot, anchor) == 0;
            if no_room && known.breaker != Breaker::Closed {
                return Err(NoSeat::Closed);
            }
            if no_room || !state.has_hot_place_for(known, bytes, &self.limits) {
                return Err(NoSeat::Full);
            }
        }
        if let Some(group) = group.and_then(|group| state.groups.get_mut(group)) {
            group.hot.in_flight += 1;
            group.bytes += bytes;
        }
        state.occupy(group, Lane::Hot);
        state.bytes += bytes;
        drop(state);
        Ok(HotSeat { hand: Arc::clone(self), group, bytes, anchor, taken: false })
    }
}

impl HotSeat {
    /// The row is committed: its event takes the place. `false` if the node has closed meanwhile;
    /// the row must then be given back by the caller.
    pub(crate) fn take(mut self, sequence: i64, envelope: EventEnvelope) -> bool {
        let hand = Arc::clone(&self.hand);
        let mut state = hand.lock();
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
        let held = Held {
            token: 1,
            event_id: Some(envelope.event_id()),
            lease_until: self.anchor + hand.limits.lease,
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
        let entry = Entry {
            sequence,
            attempts: 0,
            envelope,
            first_claim: true,
            group: self.group,
            lane: Lane::Hot,
            place: None,
        };
        if state.phase == Phase::Paused {
            state.give_back(entry, Finished::Released);
            drop(state);
            hand.results.notify_one();
        } else {
            state.lanes.push(entry);
            drop(state);
            hand.work.notify_one();
        }
        true
    }
}

impl Drop for HotSeat {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.hand.lock();
        state.vacate(self.group, Lane::Hot);
        state.let_go(self.group, Lane::Hot, self.bytes);
        drop(state);
        self.hand.room.notify_one();
        self.hand.settled.notify_waiters();
    }
}
