//! One claimed row, and its transitions from the claim until its settlement is durable.
//!
//! ```text
//!              ┌──────────────── claimed again before it started ───────────────┐
//!              ▼                                                                │
//!   claim ─▶ Queued ── a worker starts it ─▶ Running ── verdict ─▶ Recording ─▶ gone, or Queued again
//!              └──────────── given back without a call ──────────────▲
//! ```

use std::collections::{HashMap, HashSet, hash_map};
use std::time::Instant;

use super::quarantine::Suspicion;
use super::{InFlight, Lane, QueuedEvent, State};
use crate::event::{AggregateKey, EventEnvelope, EventId, Verdict, VerdictKind};
use crate::listener::ListenerId;
use crate::store::Claim;

/// A row that is claimed by this node, from the claim until its settlement is durable.
#[derive(Debug)]
pub(super) struct ClaimedRow {
    /// The token of the latest claim. A row that was claimed again after its lease had expired is adopted: the
    /// work continues under the new token.
    pub(super) token: i64,
    pub(super) event_id: Option<EventId>,
    /// Until when no other node can claim it, by our own clock and on the safe side.
    pub(super) lease_until: Instant,
    pub(super) since: Instant,
    pub(super) stage: Stage,
    pub(super) suspicion: Suspicion,
    /// The number of failed attempts, as the row says.
    pub(super) attempts: u32,
    /// The failures of these attempts, as the row says.
    pub(super) history: Option<Box<str>>,
    /// How often it was started after its owner was lost, as the row says.
    pub(super) takeovers: u32,
    pub(super) bytes: usize,
    pub(super) listener: Option<ListenerId>,
    pub(super) lane: Lane,
    /// Its aggregate, if events are ordered and it has one.
    pub(super) aggregate: Option<AggregateKey>,
    /// Present if the row was claimed again while its last verdict was being recorded.
    pub(super) reclaimed: Option<Reclaimed>,
}

/// How far a row has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// In a queue, or parked.
    Queued,
    /// Its listener runs.
    Running { since: Instant, warned: bool },
    /// It has a verdict that is not durable yet.
    Recording,
}

/// What to do with a row that was claimed again.
#[derive(Debug)]
pub(super) enum Reclaimed {
    /// Deliver it.
    Deliver(Box<Claim>, Option<ListenerId>),
    /// Its verdict is known already.
    Settle(Verdict),
}

impl ClaimedRow {
    /// A row that the poller has just claimed, for a listener.
    fn cold(row: &Claim, listener: Option<ListenerId>, lease_until: Instant, now: Instant) -> Self {
        Self {
            token: row.token,
            event_id: Some(row.envelope.event_id()),
            lease_until,
            since: now,
            stage: Stage::Queued,
            suspicion: if row.is_suspect() { Suspicion::Suspect } else { Suspicion::None },
            attempts: row.attempts,
            history: row.history.clone(),
            takeovers: row.takeovers,
            bytes: row.envelope.bytes(),
            listener,
            lane: Lane::Cold,
            aggregate: None,
            reclaimed: None,
        }
    }

    /// A row that was inserted claimed.
    pub(super) fn hot(
        envelope: &EventEnvelope,
        listener: Option<ListenerId>,
        lease_until: Instant,
        now: Instant,
    ) -> Self {
        Self {
            token: 1,
            event_id: Some(envelope.event_id()),
            lease_until,
            since: now,
            stage: Stage::Queued,
            suspicion: Suspicion::None,
            attempts: 0,
            history: None,
            takeovers: 0,
            bytes: envelope.bytes(),
            listener,
            lane: Lane::Hot,
            aggregate: None,
            reclaimed: None,
        }
    }

    /// A row whose verdict is known without a call.
    fn settled(token: i64, attempts: u32, lease_until: Instant, now: Instant) -> Self {
        Self {
            token,
            event_id: None,
            lease_until,
            since: now,
            stage: Stage::Recording,
            suspicion: Suspicion::None,
            attempts,
            history: None,
            takeovers: 0,
            bytes: 0,
            listener: None,
            lane: Lane::Cold,
            aggregate: None,
            reclaimed: None,
        }
    }

    /// The row was claimed again: takes over the numbers that it has now.
    fn refresh(&mut self, row: &Claim) {
        self.attempts = row.attempts;
        self.history.clone_from(&row.history);
        self.takeovers = row.takeovers;
    }

    /// Its lease had expired, and this node was the first to claim it again: the work continues under the new
    /// token. If only the recording is left, the work may have to be done again.
    fn adopt(&mut self, token: i64, lease_until: Instant, reclaimed: impl FnOnce() -> Reclaimed) {
        self.token = token;
        self.lease_until = lease_until;
        if self.stage == Stage::Recording {
            self.reclaimed = Some(reclaimed());
        }
    }
}

impl InFlight {
    /// Takes in claimed rows. `anchor` is when the claim was sent.
    pub(crate) fn admit(&self, rows: Vec<(Claim, Option<ListenerId>)>, anchor: Instant) {
        if rows.is_empty() {
            return;
        }
        let lease_until = self.limits.lease.until(anchor);
        let mut state = self.lock();
        let orders = state.withdraw(&rows);
        for (row, listener) in rows {
            let order = orders.get(&row.sequence).copied();
            state.admit(row, listener, lease_until, order);
        }
        drop(state);
        self.work.notify_one();
        self.results.notify_one();
    }

    /// Takes in a claimed row that a `PollerHandler` works on; `None` if it is in flight already.
    pub(crate) fn admit_external(&self, row: Claim, anchor: Instant) -> Option<QueuedEvent> {
        let mut state = self.lock();
        let (sequence, lease_until) = (row.sequence, self.limits.lease.until(anchor));
        if let Some(known) = state.rows.get_mut(&sequence) {
            known.refresh(&row);
            known.adopt(row.token, lease_until, || Reclaimed::Settle(Verdict::Released));
            return None;
        }
        let now = state.clock.now();
        let claimed = ClaimedRow {
            stage: Stage::Running { since: now, warned: false },
            // The caller has recorded the start of suspects.
            suspicion: if row.is_suspect() { Suspicion::StartRecorded } else { Suspicion::None },
            aggregate: state.aggregate_of(&row),
            ..ClaimedRow::cold(&row, None, lease_until, now)
        };
        state.bytes += claimed.bytes;
        if let Some(key) = claimed.aggregate.clone() {
            state.join_run_started(key, sequence);
        }
        state.rows.insert(sequence, claimed);
        state.running += 1;
        Some(QueuedEvent::cold(row, None, None))
    }

    /// A `PollerHandler` dropped an event without a verdict: it becomes available when its lease expires.
    pub(crate) fn abandon(&self, event: &QueuedEvent) {
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        state.forget(event.sequence);
        drop(state);
        self.capacity.notify_one();
        self.settled.notify_waiters();
    }

    /// Takes in a claimed row whose verdict is known without a call. A row that is in flight already continues
    /// under its new token. `anchor` is when the claim was sent.
    pub(crate) fn settle(&self, sequence: i64, token: i64, verdict: Verdict, anchor: Instant) {
        self.settle_in_run(None, sequence, token, verdict, anchor);
    }

    /// Like [`settle`](Self::settle), for a row of an aggregate, which may have more rows afterwards.
    pub(crate) fn settle_in_run(
        &self,
        aggregate: Option<AggregateKey>,
        sequence: i64,
        token: i64,
        verdict: Verdict,
        anchor: Instant,
    ) {
        let mut state = self.lock();
        let (now, lease_until) = (state.clock.now(), self.limits.lease.until(anchor));
        let attempts = verdict.attempts().unwrap_or_default();
        state.out_of_order |= verdict.kind() == VerdictKind::Released;
        let waiting = state.take_waiting(sequence);
        match state.rows.entry(sequence) {
            hash_map::Entry::Occupied(mut ours) => {
                let row = ours.get_mut();
                match waiting {
                    // It has not started, and will not.
                    Some(event) => {
                        (row.token, row.lease_until) = (token, lease_until);
                        row.attempts = attempts;
                        state.give_back(event, verdict);
                    }
                    None => row.adopt(token, lease_until, || Reclaimed::Settle(verdict)),
                }
            }
            hash_map::Entry::Vacant(place) => {
                let row = place.insert(ClaimedRow::settled(token, attempts, lease_until, now));
                row.aggregate.clone_from(&aggregate);
                if let Some(key) = aggregate {
                    state.join_run_settled(key, sequence, verdict.kind());
                }
                state.results.push(sequence, verdict, attempts);
            }
        }
        drop(state);
        self.results.notify_one();
    }

    /// Returns whether rows that were claimed before may be due behind rows that were written later, and forgets it.
    pub(crate) fn take_out_of_order(&self) -> bool {
        std::mem::take(&mut self.lock().out_of_order)
    }

    /// The order of such rows could not be restored.
    pub(crate) fn still_out_of_order(&self) {
        self.lock().out_of_order = true;
    }

    /// Gives back every event that has not started.
    pub(crate) fn give_back_waiting(&self) {
        let mut state = self.lock();
        for event in state.extract(|_| true) {
            state.give_back(event, Verdict::Released);
        }
        drop(state);
        self.results.notify_one();
        self.settled.notify_waiters();
    }
}

impl State {
    /// Removes rows that are claimed again before they have started here: they start as the new claim says,
    /// because another node may have had them meanwhile, have failed, or been lost with them. Returns the
    /// order of those that have left their queue.
    fn withdraw(&mut self, rows: &[(Claim, Option<ListenerId>)]) -> HashMap<i64, u64> {
        let sequences = rows.iter().map(|(row, _)| row.sequence);
        let again: HashSet<i64> = sequences.filter(|sequence| self.is_queued(*sequence)).collect();
        let mut orders = HashMap::new();
        if again.is_empty() {
            return orders;
        }
        for event in self.extract(|event| again.contains(&event.sequence)) {
            orders.extend(event.order.map(|order| (event.sequence, order)));
            self.vacate(event.listener, event.lane);
            if let Some(row) = self.rows.remove(&event.sequence) {
                self.free(row.listener, row.lane, row.bytes);
                if let Some(key) = &row.aggregate {
                    self.withdraw_from_run(key, event.sequence);
                }
            }
        }
        orders
    }

    fn is_queued(&self, sequence: i64) -> bool {
        self.rows.get(&sequence).is_some_and(|row| row.stage == Stage::Queued)
    }

    /// Removes the event of a row that has not started from where it waits.
    fn take_waiting(&mut self, sequence: i64) -> Option<QueuedEvent> {
        self.is_queued(sequence).then(|| self.extract(|event| event.sequence == sequence).pop())?
    }

    pub(super) fn admit(
        &mut self,
        row: Claim,
        listener: Option<ListenerId>,
        lease_until: Instant,
        order: Option<u64>,
    ) {
        let sequence = row.sequence;
        let aggregate = self.aggregate_of(&row);
        if let Some(known) = self.rows.get_mut(&sequence) {
            // It was given back or settled without having been in a run: those behind it must wait.
            if let (Stage::Recording, Some(key)) = (known.stage, &aggregate) {
                known.aggregate = Some(key.clone());
                self.runs.entry(key.clone()).or_default().stop_at(sequence);
            }
            known.refresh(&row);
            let token = row.token;
            known.adopt(token, lease_until, || match aggregate {
                None => Reclaimed::Deliver(Box::new(row), listener),
                // Those before it may have been left to their leases by then, so it is claimed anew.
                Some(_) => Reclaimed::Settle(Verdict::Released),
            });
            return;
        }
        let mut claimed = ClaimedRow::cold(&row, listener, lease_until, self.clock.now());
        claimed.aggregate = aggregate.clone();
        let bytes = claimed.bytes;
        self.bytes += bytes;
        self.rows.insert(sequence, claimed);
        if let Some(load) = self.listener_mut(listener) {
            load.cold.in_flight += 1;
            load.bytes += bytes;
        }
        self.occupy(listener, Lane::Cold);
        let event = QueuedEvent::cold(row, listener, order);
        match (aggregate, order) {
            // It was claimed while the node or the subscription was being paused, or the node was closed or lost the
            // right to deliver.
            _ if !self.may_call() || self.is_paused(listener) => {
                self.give_back(event, Verdict::Released)
            }
            (Some(key), _) => self.join_run(key, event),
            (None, Some(_)) => self.queue.push_ready(event),
            (None, None) => self.queue.push(event),
        }
    }

    /// Returns the aggregate of an event, if events are ordered.
    fn aggregate_of(&self, row: &Claim) -> Option<AggregateKey> {
        self.order.and_then(|_| AggregateKey::of(&row.envelope, &row.recipient))
    }

    /// Gives an event that has not started back to the table, with those of its aggregate that come after it.
    pub(super) fn give_back(&mut self, event: QueuedEvent, verdict: Verdict) {
        let (sequence, kind) = (event.sequence, verdict.kind());
        let aggregate = self.rows.get(&sequence).and_then(|row| row.aggregate.clone());
        self.give_back_alone(event, verdict);
        if let Some(key) = aggregate {
            self.run_verdict(&key, sequence, kind);
        }
    }

    /// Gives an event that has not started back to the table.
    pub(super) fn give_back_alone(&mut self, event: QueuedEvent, verdict: Verdict) {
        self.vacate(event.listener, event.lane);
        self.out_of_order = true;
        if let Some(row) = self.rows.get_mut(&event.sequence) {
            row.stage = Stage::Recording;
            let (attempts, verdict) = (row.attempts, row.suspicion.adjust(verdict));
            self.results.push(event.sequence, verdict, attempts);
        }
    }

    /// A row is no longer in flight.
    pub(super) fn forget(&mut self, sequence: i64) {
        if let Some(row) = self.rows.remove(&sequence) {
            self.free(row.listener, row.lane, row.bytes);
            if let Some(key) = &row.aggregate {
                self.leave_run(key, sequence);
            }
            let now = self.clock.now();
            // A row that was never meant for a listener may have been the probe of any.
            let listeners = match row.listener {
                Some(id) => self.listeners.get_mut(id.index()..=id.index()),
                None => Some(&mut self.listeners[..]),
            };
            let breakers = listeners.into_iter().flatten().map(|load| &mut load.breaker);
            breakers.for_each(|breaker| breaker.row_gone(sequence, now));
        }
    }
}
