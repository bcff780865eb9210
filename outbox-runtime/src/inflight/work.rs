//! What workers do.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::listener::Breaker;
use super::row::{Stage, Trial};
use super::{BreakerStep, InFlight, Lane, Limits, Phase, QueuedEvent, State};
use crate::store::Verdict;

impl InFlight {
    /// The next event to be delivered; `None` when it is over.
    pub(crate) async fn next(&self, stop: &CancellationToken) -> Option<QueuedEvent> {
        loop {
            let woken = self.work.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if let Some(entry) = self.try_next() {
                return Some(entry);
            }
            tokio::select! {
                () = woken => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    pub(crate) fn try_next(&self) -> Option<QueuedEvent> {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Paused | Phase::Closed)
            || state.unrecorded() >= self.limits.results
        {
            return None;
        }
        let before = (state.aside(), state.results.len());
        let entry = state.start_next(&self.limits);
        let (aside, given_back) = (state.aside() > before.0, state.results.len() > before.1);
        let more = state.lanes.has_entries() || state.has_turn(&self.limits);
        let half_empty = state.lanes.used(Lane::Cold) == self.limits.cold / 2;
        let limited = entry.as_ref().and_then(|entry| entry.group);
        let limited = limited.is_some_and(|group| state.groups[group].limit.is_some());
        drop(state);
        if more && entry.is_some() {
            self.work.notify_one();
        }
        if aside {
            self.leases.notify_one();
        }
        if given_back {
            self.results.notify_one();
        }
        if half_empty || limited {
            self.room.notify_one();
        }
        entry
    }

    /// A listener has come to its end.
    pub(crate) fn finish(&self, entry: &QueuedEvent, result: Verdict) -> BreakerStep {
        let mut state = self.lock();
        let step = match result {
            Verdict::Released | Verdict::Cancelled => BreakerStep::Unchanged,
            _ => state.reached(entry),
        };
        state.end(entry, result);
        drop(state);
        self.wake_after_end();
        step
    }

    /// The token under which a row is in hand.
    pub(crate) fn token(&self, entry: &QueuedEvent) -> Option<i64> {
        self.lock().held.get(&entry.sequence).map(|held| held.token)
    }

    /// A listener has come to its end, and there is nothing to record: its event was marked in its own
    /// transaction. Or nobody knows whether it was; it then returns when its lease has ended.
    pub(crate) fn settled(&self, entry: &QueuedEvent, marked: bool) -> BreakerStep {
        let mut state = self.lock();
        let step = if marked { state.reached(entry) } else { BreakerStep::Unchanged };
        state.call_ended(entry);
        state.forget(entry.sequence);
        let suspects = !state.suspects.is_empty();
        drop(state);
        self.wake_after_end();
        self.wake_after_record(suspects);
        step
    }

    /// A listener could not reach what it talks to: it pauses, for a time that depends on how often
    /// it has done so in a row, and everything that waits for it goes back to the table.
    pub(crate) fn unreachable(
        &self,
        entry: &QueuedEvent,
        pause: impl Fn(u32) -> Duration,
    ) -> BreakerStep {
        let mut state = self.lock();
        let now = state.clock.now();
        let mut step = BreakerStep::Unchanged;
        let mut delay = pause(1);
        let index = entry.group;
        if let Some(group) = index.and_then(|group| state.groups.get_mut(group)) {
            match group.breaker {
                // This call had begun before the pause.
                Breaker::Open { until, .. } => delay = until.saturating_duration_since(now),
                Breaker::Probing { probe, failures } if probe != entry.sequence => {
                    delay = pause(failures);
                }
                Breaker::Probing { failures, .. } => {
                    step = BreakerStep::Opened { failures: failures.saturating_add(1) };
                }
                Breaker::Closed => step = BreakerStep::Opened { failures: 1 },
            }
            if let BreakerStep::Opened { failures } = step {
                delay = pause(failures);
                group.breaker = Breaker::Open { until: now + delay, failures };
            }
        }
        state.end(entry, Verdict::Deferred { delay });
        if let (BreakerStep::Opened { .. }, Some(index)) = (step, index) {
            for waiting in state.extract(|entry| entry.group == Some(index)) {
                state.give_back(waiting, Verdict::Postponed { delay });
            }
        }
        drop(state);
        self.wake_after_end();
        step
    }

    fn wake_after_end(&self) {
        self.results.notify_one();
        self.work.notify_one();
        self.settled.notify_waiters();
    }
}

/// Where an entry has waited last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// Parked ones of its listener are older.
    FromLane,
    FromWaiting,
}

impl State {
    /// How many are set aside until the renewer has been there.
    fn aside(&self) -> usize {
        self.short.len() + self.suspects.len()
    }

    /// Finds the next entry that can start, and sets those aside that cannot.
    fn start_next(&mut self, limits: &Limits) -> Option<QueuedEvent> {
        let now = self.clock.now();
        while let Some((entry, came)) = self.next_waiting(limits, now) {
            let Some(held) = self.held.get(&entry.sequence) else {
                self.vacate(entry.group, entry.lane);
                continue;
            };
            if held.trial == Trial::Due {
                self.suspects.push(entry);
                continue;
            }
            if held.lease_until.saturating_duration_since(now) < limits.lease / 3 {
                self.short.push(entry);
                continue;
            }
            if let Some(index) = entry.group
                && let Some(group) = self.groups.get(index)
            {
                if let Some(delay) = group.breaker.paused_for(now) {
                    self.give_back(entry, Verdict::Postponed { delay });
                    continue;
                }
                let behind_others = came == Came::FromLane && !group.parked.is_empty();
                if behind_others || !self.may_begin(index, limits, now) {
                    self.park(entry, index);
                    continue;
                }
                self.begin(index, entry.sequence);
            }
            if let Some(held) = self.held.get_mut(&entry.sequence) {
                held.stage = Stage::Running { since: now, warned: false };
            }
            self.running += 1;
            self.vacate(entry.group, entry.lane);
            return Some(entry);
        }
        None
    }

    /// The next entry to look at. Parked ones that may begin and those in the lanes come by turns, so
    /// that neither wait for the end of the others.
    fn next_waiting(&mut self, limits: &Limits, now: Instant) -> Option<(QueuedEvent, Came)> {
        if let Some(entry) = self.lanes.pop_ready() {
            return Some((entry, Came::FromWaiting));
        }
        if self.turns.is_empty() {
            return Some((self.lanes.pop()?, Came::FromLane));
        }
        self.parked_first = !self.parked_first;
        let first = if self.parked_first { self.unpark(limits, now) } else { None };
        if let Some(entry) = first {
            return Some((entry, Came::FromWaiting));
        }
        if let Some(entry) = self.lanes.pop() {
            return Some((entry, Came::FromLane));
        }
        Some((self.unpark(limits, now)?, Came::FromWaiting))
    }

    fn park(&mut self, entry: QueuedEvent, index: usize) {
        let Some(group) = self.groups.get_mut(index) else { return };
        if group.parked.is_empty() {
            self.turns.push_back(index);
        }
        let older = group.parked.iter().rposition(|other| other.place < entry.place);
        group.parked.insert(older.map_or(0, |older| older + 1), entry);
    }

    /// Whether a parked entry may begin.
    fn has_turn(&self, limits: &Limits) -> bool {
        let now = self.clock.now();
        self.turns.iter().any(|index| self.may_begin(*index, limits, now))
    }

    /// Takes out the next parked entry that may begin. The listeners take turns.
    fn unpark(&mut self, limits: &Limits, now: Instant) -> Option<QueuedEvent> {
        let turn = self.turns.iter().position(|index| self.may_begin(*index, limits, now))?;
        let index = self.turns.remove(turn)?;
        let parked = &mut self.groups.get_mut(index)?.parked;
        let entry = parked.pop_front();
        if !parked.is_empty() {
            self.turns.push_back(index);
        }
        entry
    }

    fn begin(&mut self, index: usize, sequence: i64) {
        if let Some(group) = self.groups.get_mut(index) {
            group.begin(sequence);
            self.in_tx += usize::from(group.in_tx);
        }
    }

    /// The listener has reached what it talks to: if this was the probe, its breaker closes.
    fn reached(&mut self, entry: &QueuedEvent) -> BreakerStep {
        if let Some(group) = entry.group.and_then(|group| self.groups.get_mut(group))
            && let Breaker::Probing { probe, .. } = group.breaker
            && probe == entry.sequence
        {
            group.breaker = Breaker::Closed;
            return BreakerStep::Closed;
        }
        BreakerStep::Unchanged
    }

    fn call_ended(&mut self, entry: &QueuedEvent) {
        self.running = self.running.saturating_sub(1);
        if let Some(group) = entry.group.and_then(|group| self.groups.get_mut(group)) {
            group.running = group.running.saturating_sub(1);
            if group.in_tx {
                self.in_tx = self.in_tx.saturating_sub(1);
            }
        }
    }

    /// A call has ended, and there is a result.
    fn end(&mut self, entry: &QueuedEvent, result: Verdict) {
        self.call_ended(entry);
        if let Some(held) = self.held.get_mut(&entry.sequence) {
            held.stage = Stage::Recording;
            let result = held.given_back(result);
            self.record(entry.sequence, result, entry.attempts);
        }
    }
}
