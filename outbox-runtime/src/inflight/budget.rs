//! How much the poller may claim.

use std::time::{Duration, Instant};

use super::fairness::{Claiming, Portion, sooner};
use super::{InFlight, Lane, Limits, Phase, State};

/// How much the poller may claim.
#[derive(Debug, Default)]
pub(crate) struct ClaimBudget {
    /// Free places in the cold lane, if now is the time to fill them.
    pub(crate) lane: usize,
    /// All places but those of listeners whose events are not claimed.
    pub(super) places: usize,
    /// The most rows, so that no listener gets more than its share.
    pub(crate) rows: usize,
    /// The most bytes.
    pub(crate) bytes: usize,
    /// For each listener, whether its events may be claimed.
    pub(crate) open: Vec<bool>,
    /// When all this changes although nothing happens: the pause of a listener ends, or one is left
    /// out.
    pub(crate) changes_in: Option<Duration>,
    /// When the pause of a listener ends. Of all changes this alone matters while nothing is due.
    pub(crate) reopens_in: Option<Duration>,
}

impl ClaimBudget {
    /// The least number of free places that is worth a claim.
    pub(crate) fn worthwhile(&self, batch: usize) -> usize {
        (self.places / 2).min(batch).max(1)
    }
}

/// What a claim would find.
#[derive(Debug, Default)]
struct Survey {
    room: ClaimBudget,
    /// For each listener.
    claiming: Vec<Claiming>,
    short_of_room: Option<Instant>,
}

impl InFlight {
    /// What may be claimed now. It only asks.
    pub(crate) fn claim_budget(&self) -> ClaimBudget {
        self.lock().survey(&self.limits).room
    }

    /// What may be claimed by a claim that begins now. A listener that is too slow is left out of the next
    /// ones, and a claim for less than usual is not granted again for a while.
    pub(crate) fn start_claim(&self) -> ClaimBudget {
        let mut state = self.lock();
        let Survey { room, claiming, short_of_room } = state.survey(&self.limits);
        for (group, claiming) in state.groups.iter_mut().zip(claiming) {
            group.claiming = claiming;
        }
        if state.phase == Phase::Running {
            state.short_of_room = short_of_room;
        }
        room
    }

    /// Waits until there may be more room than before.
    pub(crate) async fn more_room(&self) {
        self.room.notified().await;
    }

    /// How many listeners are paused, or are being probed. One that is half-open is not: its next event
    /// is delivered.
    pub(crate) fn paused(&self) -> usize {
        let state = self.lock();
        let now = state.clock.now();
        state.groups.iter().filter(|group| group.breaker.is_halted(now)).count()
    }
}

impl State {
    fn survey(&self, limits: &Limits) -> Survey {
        let now = self.clock.now();
        if self.phase != Phase::Running {
            return Survey::default();
        }
        let Limits { cold, batch, .. } = *limits;
        let (used, bytes) = (self.lanes.used(Lane::Cold), self.bytes);
        let alone = self.is_alone();
        let lane = cold.saturating_sub(used);
        let mut room = ClaimBudget { lane, places: cold, rows: lane, ..ClaimBudget::default() };
        room.bytes = limits.bytes.saturating_sub(bytes);
        let mut each = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let mut free = group.room(Lane::Cold, cold, now);
            // Not for a few: a claim that is worth its statement, or none.
            let mut open = free >= (cold / 16).max(1);
            let mut claiming = group.claiming;
            if !alone {
                let places = Portion::new(cold, used, group.cold.queued).or_worth(batch);
                let memory = Portion::new(limits.bytes, bytes, group.bytes);
                claiming = claiming.next([places, memory], now);
                open &= claiming != Claiming::LeftOut;
                free = free.min(places.free);
                if open {
                    room.bytes = room.bytes.min(memory.free);
                }
            }
            let pause = group.breaker.paused_for(now);
            let wait = pause.or(claiming.grace_left(now).filter(|_| open));
            if open && matches!(claiming, Claiming::Crowded { .. }) {
                room.lane = 0;
            }
            room.changes_in = sooner(room.changes_in, wait);
            room.reopens_in = sooner(room.reopens_in, pause);
            room.open.push(open);
            each.push(claiming);
            if open {
                room.rows = room.rows.min(free);
            } else {
                room.places = room.places.saturating_sub(group.cold.queued);
            }
        }
        let short_of_room = self.settle_for_less(&mut room, batch, now);
        Survey { room, claiming: each, short_of_room }
    }
}
