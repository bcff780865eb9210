//! What workers do.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::group::Breaker;
use super::held::Stage;
use super::{BreakerStep, Entry, Hand, Lane, Phase, State};
use crate::store::Finished;

impl Hand {
    /// The next event to be delivered; `None` when it is over.
    pub(crate) async fn next(&self, stop: &CancellationToken) -> Option<Entry> {
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

    pub(super) fn try_next(&self) -> Option<Entry> {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Paused | Phase::Closed)
            || state.results.len() + state.in_flight >= self.limits.results
        {
            return None;
        }
        let before = (state.short.len(), state.results.len());
        let entry = state.start_next(self.limits.lease);
        let (short, given_back) = (state.short.len() > before.0, state.results.len() > before.1);
        let more = state.lanes.has_entries();
        let half_empty = state.lanes.used(Lane::Cold) == self.limits.cold / 2;
        let limited = entry.as_ref().and_then(|entry| entry.group);
        let limited = limited.is_some_and(|group| state.groups[group].limit.is_some());
        drop(state);
        if more && entry.is_some() {
            self.work.notify_one();
        }
        if short {
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
    pub(crate) fn finish(&self, entry: &Entry, result: Finished) -> BreakerStep {
        let mut state = self.lock();
        let mut step = BreakerStep::Unchanged;
        let verdict = !matches!(result, Finished::Released);
        if let Some(group) = entry.group.and_then(|group| state.groups.get_mut(group))
            && let Breaker::Probing { probe, .. } = group.breaker
            && probe == entry.sequence
            && verdict
        {
            group.breaker = Breaker::Closed;
            step = BreakerStep::Closed;
            let parked = std::mem::take(&mut group.parked);
            parked.into_iter().for_each(|parked| state.lanes.push_ready(parked));
        }
        state.end(entry, result);
        drop(state);
        self.wake_after_end();
        step
    }

    /// A listener could not reach what it talks to: it pauses, for a time that depends on how often
    /// it has done so in a row, and everything that waits for it goes back to the table.
    pub(crate) fn unreachable(
        &self,
        entry: &Entry,
        pause: impl Fn(u32) -> Duration,
    ) -> BreakerStep {
        let mut state = self.lock();
        let now = Instant::now();
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
        state.end(entry, Finished::Deferred { delay });
        if let (BreakerStep::Opened { .. }, Some(index)) = (step, index) {
            for waiting in state.extract(|entry| entry.group == Some(index)) {
                state.give_back(waiting, Finished::Deferred { delay });
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

impl State {
    /// Finds the next entry that can start, and sets those aside that cannot.
    fn start_next(&mut self, lease: Duration) -> Option<Entry> {
        let now = Instant::now();
        while let Some(entry) = self.lanes.pop() {
            let Some(held) = self.held.get_mut(&entry.sequence) else {
                self.lanes.free(entry.lane);
                continue;
            };
            if held.lease_until.saturating_duration_since(now) < lease / 3 {
                self.short.push(entry);
                continue;
            }
            if let Some(group) = entry.group.and_then(|group| self.groups.get_mut(group)) {
                if let Some(delay) = group.paused_for(now) {
                    self.give_back(entry, Finished::Deferred { delay });
                    continue;
                }
                if !group.may_run(entry.sequence) {
                    group.parked.push_back(entry);
                    continue;
                }
                group.running += 1;
            }
            held.stage = Stage::Running { since: now, warned: false };
            self.running += 1;
            self.lanes.free(entry.lane);
            return Some(entry);
        }
        None
    }

    /// A call has ended; one that waited for it can begin.
    fn end(&mut self, entry: &Entry, result: Finished) {
        self.running = self.running.saturating_sub(1);
        if let Some(group) = entry.group.and_then(|group| self.groups.get_mut(group)) {
            group.running = group.running.saturating_sub(1);
            if let Some(parked) = group.parked.pop_front() {
                self.lanes.push_ready(parked);
            }
        }
        if let Some(held) = self.held.get_mut(&entry.sequence) {
            held.stage = Stage::Recording;
            self.results.push_back((entry.sequence, result));
        }
    }
}
