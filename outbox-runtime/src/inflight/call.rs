//! A call of a listener: which event starts next, and what its end changes.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::quarantine::Suspicion;
use super::row::Stage;
use super::run::Turn;
use super::{BreakerChange, InFlight, Lane, Limits, QueuedEvent, State};
use crate::event::{Verdict, VerdictKind};
use crate::listener::ListenerId;

impl InFlight {
    /// Waits for the next event to deliver; `None` when `stop` is cancelled.
    pub(crate) async fn next(&self, stop: &CancellationToken) -> Option<QueuedEvent> {
        loop {
            let woken = self.work.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            tokio::select! {
                () = woken => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    /// Waits until an event may be ready to start, without taking it; `None` when `stop` is cancelled.
    pub(crate) async fn ready(&self, stop: &CancellationToken) -> Option<()> {
        loop {
            let woken = self.work.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if self.may_have_next() {
                return Some(());
            }
            tokio::select! {
                () = woken => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    fn may_have_next(&self) -> bool {
        let state = self.lock();
        !self.starts_nothing(&state) && (state.queue.has_events() || state.has_turn(&self.limits))
    }

    fn starts_nothing(&self, state: &State) -> bool {
        !state.may_call() || state.results.len() >= self.limits.results
    }

    pub(crate) fn try_next(&self) -> Option<QueuedEvent> {
        let mut state = self.lock();
        if self.starts_nothing(&state) {
            return None;
        }
        let before = (state.waiting_for_renewal(), state.results.ready());
        let event = state.start_next(&self.limits);
        let needs_renewal = state.waiting_for_renewal() > before.0;
        let gave_back = state.results.ready() > before.1;
        let has_more = state.queue.has_events() || state.has_turn(&self.limits);
        let is_half_empty = state.queue.used(Lane::Cold) == self.limits.cold / 2;
        let listener = event.as_ref().and_then(|event| state.listener(event.listener));
        let is_limited = listener.is_some_and(|load| load.limit.calls.is_some());
        drop(state);
        if has_more && event.is_some() {
            self.work.notify_one();
        }
        if needs_renewal {
            self.leases.notify_one();
        }
        if gave_back {
            self.results.notify_one();
        }
        if is_half_empty || is_limited {
            self.capacity.notify_one();
        }
        event
    }

    /// Returns the token under which a row is in flight.
    pub(crate) fn token(&self, event: &QueuedEvent) -> Option<i64> {
        self.lock().rows.get(&event.sequence).map(|row| row.token)
    }

    /// A call ended with a verdict that has to be recorded.
    pub(crate) fn finish(&self, event: &QueuedEvent, verdict: Verdict) -> BreakerChange {
        let mut state = self.lock();
        let change = match verdict {
            Verdict::Released | Verdict::Cancelled => BreakerChange::Unchanged,
            _ => state.reached(event),
        };
        state.call_ended(event);
        if let Some(row) = state.rows.get_mut(&event.sequence) {
            row.stage = Stage::Recording;
            let verdict = row.suspicion.adjust(verdict);
            let (kind, aggregate) = (verdict.kind(), row.aggregate.clone());
            state.results.push(event.sequence, verdict, event.attempts);
            if let Some(key) = aggregate {
                state.run_verdict(&key, event.sequence, kind);
            }
        }
        drop(state);
        self.wake_after_call();
        change
    }

    /// A call ended, and its own transaction has settled the row.
    pub(crate) fn settled_in_tx(&self, event: &QueuedEvent) -> BreakerChange {
        let mut state = self.lock();
        let change = state.reached(event);
        self.forget_call(state, event, VerdictKind::Done);
        change
    }

    /// A call ended, and it is unknown whether its transaction settled the row. If not, the event becomes
    /// available when its lease expires.
    pub(crate) fn leave_to_lease(&self, event: &QueuedEvent) {
        self.forget_call(self.lock(), event, VerdictKind::Released);
    }

    fn forget_call(
        &self,
        mut state: std::sync::MutexGuard<'_, State>,
        event: &QueuedEvent,
        verdict: VerdictKind,
    ) {
        state.call_ended(event);
        let row = state.rows.get(&event.sequence);
        if let Some(key) = row.and_then(|row| row.aggregate.clone()) {
            state.run_verdict(&key, event.sequence, verdict);
        }
        state.forget(event.sequence);
        let has_suspects = !state.quarantine.waiting.is_empty();
        drop(state);
        self.wake_after_call();
        self.wake_after_settling(has_suspects);
    }

    /// The listener of a running call could not reach what it depends on: its circuit breaker opens, for a time
    /// that depends on how often that happened in a row. Returns the change, and how long the event of the call
    /// has to wait. Once that event has its verdict, [`postpone`](Self::postpone) gives back the others.
    pub(crate) fn unreachable(
        &self,
        event: &QueuedEvent,
        pause: impl Fn(u32) -> Duration,
    ) -> (BreakerChange, Duration) {
        let mut state = self.lock();
        let now = state.clock.now();
        let Some(load) = state.listener_mut(event.listener) else {
            return (BreakerChange::Unchanged, pause(1));
        };
        load.breaker.unreachable(event.sequence, now, pause)
    }

    /// Gives back every event that waits for the listener of another one: its circuit breaker has opened.
    pub(crate) fn postpone(&self, opened_by: &QueuedEvent, delay: Duration) {
        let mut state = self.lock();
        for waiting in state.extract(|event| event.listener == opened_by.listener) {
            state.give_back(waiting, Verdict::Postponed { delay });
        }
        drop(state);
        self.results.notify_one();
        self.settled.notify_waiters();
    }

    fn wake_after_call(&self) {
        self.results.notify_one();
        self.work.notify_one();
        self.settled.notify_waiters();
    }

    /// Wakes the poller, because there is capacity, and the renewer, because a suspect may be next.
    pub(super) fn wake_after_settling(&self, has_suspects: bool) {
        self.capacity.notify_one();
        if self.limits.order.is_some() && self.has_continued() {
            self.run_ended.notify_one();
        }
        if has_suspects {
            self.leases.notify_one();
        }
    }
}

/// Where an event waited before it was considered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// In a queue, so that parked events of the same listener go first.
    Queue,
    /// Anywhere else.
    Waiting,
}

impl State {
    /// The number of events that wait until the renewer has been there.
    fn waiting_for_renewal(&self) -> usize {
        self.expiring.len() + self.quarantine.waiting.len()
    }

    /// Starts the next event that can, and sets aside those that cannot.
    fn start_next(&mut self, limits: &Limits) -> Option<QueuedEvent> {
        let now = self.clock.now();
        if limits.in_sequence && self.waiting_for_renewal() > 0 {
            return None;
        }
        while let Some((event, origin)) = self.next_waiting(limits, now) {
            let Some(row) = self.rows.get(&event.sequence) else {
                self.vacate(event.listener, event.lane);
                continue;
            };
            if let Some(key) = row.aggregate.clone() {
                match self.turn_of(&key, event.sequence) {
                    Turn::Start => {}
                    Turn::Wait => {
                        self.wait_in_run(&key, event);
                        continue;
                    }
                    Turn::GiveBack => {
                        self.give_back(event, Verdict::Released);
                        continue;
                    }
                }
            }
            let Some(row) = self.rows.get(&event.sequence) else { continue };
            if row.suspicion == Suspicion::Suspect {
                self.quarantine.waiting.push(event);
                match limits.in_sequence {
                    true => return None,
                    false => continue,
                }
            }
            if !limits.lease.may_start(row.lease_until, now) {
                self.expiring.push(event);
                match limits.in_sequence {
                    true => return None,
                    false => continue,
                }
            }
            if let Some(id) = event.listener
                && let Some(load) = self.listener(Some(id))
            {
                if let Some(delay) = load.breaker.paused_for(now) {
                    self.give_back(event, Verdict::Postponed { delay });
                    continue;
                }
                let is_behind_others = origin == Origin::Queue && !load.parked.is_empty();
                if is_behind_others || !self.may_start(id, limits, now) {
                    self.park(event, id);
                    continue;
                }
                self.call_started(id, event.sequence);
            }
            if let Some(row) = self.rows.get_mut(&event.sequence) {
                row.stage = Stage::Running { since: now, warned: false };
                if let Some(key) = row.aggregate.clone() {
                    self.run_started(&key, event.sequence);
                }
            }
            self.running += 1;
            self.vacate(event.listener, event.lane);
            return Some(event);
        }
        None
    }

    /// Takes the next event to consider. Parked events that may start and those in the queues take turns, so
    /// that neither wait for the end of the others.
    fn next_waiting(&mut self, limits: &Limits, now: Instant) -> Option<(QueuedEvent, Origin)> {
        if let Some(event) = self.queue.pop_ready() {
            return Some((event, Origin::Waiting));
        }
        if self.turns.is_empty() {
            return Some((self.queue.pop()?, Origin::Queue));
        }
        self.parked_first = !self.parked_first;
        let first = if self.parked_first { self.unpark(limits, now) } else { None };
        if let Some(event) = first {
            return Some((event, Origin::Waiting));
        }
        if let Some(event) = self.queue.pop() {
            return Some((event, Origin::Queue));
        }
        Some((self.unpark(limits, now)?, Origin::Waiting))
    }

    /// Sets an event aside until a call of its listener ends. It holds no worker meanwhile.
    fn park(&mut self, event: QueuedEvent, listener: ListenerId) {
        let Some(load) = self.listeners.get_mut(listener.index()) else { return };
        if load.parked.is_empty() {
            self.turns.push_back(listener);
        }
        let older = load.parked.iter().rposition(|other| other.order < event.order);
        load.parked.insert(older.map_or(0, |older| older + 1), event);
    }

    /// Returns whether a parked event may start.
    fn has_turn(&self, limits: &Limits) -> bool {
        let now = self.clock.now();
        self.turns.iter().any(|listener| self.may_start(*listener, limits, now))
    }

    /// Takes the next parked event that may start. The listeners take turns.
    fn unpark(&mut self, limits: &Limits, now: Instant) -> Option<QueuedEvent> {
        let turn = self.turns.iter().position(|id| self.may_start(*id, limits, now))?;
        let listener = self.turns.remove(turn)?;
        let parked = &mut self.listener_mut(Some(listener))?.parked;
        let event = parked.pop_front();
        if !parked.is_empty() {
            self.turns.push_back(listener);
        }
        event
    }

    fn call_started(&mut self, listener: ListenerId, sequence: i64) {
        if let Some(load) = self.listeners.get_mut(listener.index()) {
            load.running += 1;
            load.breaker.started(sequence);
            self.in_tx += usize::from(load.limit.in_tx);
        }
    }

    fn reached(&mut self, event: &QueuedEvent) -> BreakerChange {
        let load = self.listener_mut(event.listener);
        load.map_or(BreakerChange::Unchanged, |load| load.breaker.reached(event.sequence))
    }

    fn call_ended(&mut self, event: &QueuedEvent) {
        self.running = self.running.saturating_sub(1);
        if let Some(load) = self.listener_mut(event.listener) {
            load.running = load.running.saturating_sub(1);
            if load.limit.in_tx {
                self.in_tx = self.in_tx.saturating_sub(1);
            }
        }
    }
}
