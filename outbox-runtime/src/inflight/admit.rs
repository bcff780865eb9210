//! What the poller brings in.

use std::collections::{HashMap, HashSet, hash_map};
use std::time::Instant;

use super::row::{Again, ClaimedRow, Stage, Trial};
use super::{InFlight, Lane, Phase, QueuedEvent, State};
use crate::store::{Claim, Verdict};

impl InFlight {
    /// Takes in claimed rows. `anchor` is when the claim was asked for.
    pub(crate) fn admit(&self, rows: Vec<(Claim, Option<usize>)>, anchor: Instant) {
        if rows.is_empty() {
            return;
        }
        let lease_until = anchor + self.limits.lease;
        let mut state = self.lock();
        let places = state.withdraw(&rows);
        for (row, group) in rows {
            let place = places.get(&row.sequence).copied();
            state.admit(row, group, lease_until, place);
        }
        drop(state);
        self.work.notify_one();
        self.results.notify_one();
    }

    /// Takes in a claimed row for somebody else to work on; `None` if it is in hand already.
    pub(crate) fn checkout(&self, row: Claim, anchor: Instant) -> Option<QueuedEvent> {
        let mut state = self.lock();
        let sequence = row.sequence;
        if let Some(held) = state.held.get_mut(&sequence) {
            held.learn(&row);
            held.adopt(row.token, anchor + self.limits.lease, || Again::Settle(Verdict::Released));
            return None;
        }
        let now = state.clock.now();
        let lease_until = anchor + self.limits.lease;
        let held = ClaimedRow {
            stage: Stage::Running { since: now, warned: false },
            // Whoever lends it has written that down.
            trial: if row.is_suspect() { Trial::Begun } else { Trial::Spared },
            ..ClaimedRow::of(&row, None, lease_until, now)
        };
        state.bytes += held.bytes;
        state.held.insert(sequence, held);
        state.running += 1;
        Some(QueuedEvent::claimed(row, None, None))
    }

    /// Whoever had it has let go of it: it returns when its lease has ended.
    pub(crate) fn abandon(&self, entry: &QueuedEvent) {
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        state.forget(entry.sequence);
        drop(state);
        self.room.notify_one();
        self.settled.notify_waiters();
    }

    /// Takes in a claimed row whose result is known without any listener. One that is in hand already
    /// goes on under its new token. `anchor` is when the claim was asked for.
    pub(crate) fn settle(&self, sequence: i64, token: i64, result: Verdict, anchor: Instant) {
        let mut state = self.lock();
        let (now, lease_until) = (state.clock.now(), anchor + self.limits.lease);
        let attempts = match result {
            Verdict::Dead { attempts, .. } => attempts,
            _ => 0,
        };
        let waiting = state.waiting(sequence);
        match state.held.entry(sequence) {
            hash_map::Entry::Occupied(mut ours) => {
                let held = ours.get_mut();
                match waiting {
                    // It has not begun, and will not.
                    Some(entry) => {
                        (held.token, held.lease_until) = (token, lease_until);
                        held.attempts = attempts;
                        state.give_back(entry, result);
                    }
                    None => held.adopt(token, lease_until, || Again::Settle(result)),
                }
            }
            hash_map::Entry::Vacant(place) => {
                place.insert(ClaimedRow {
                    token,
                    event_id: None,
                    lease_until,
                    since: now,
                    stage: Stage::Recording,
                    trial: Trial::Spared,
                    attempts,
                    takeovers: 0,
                    bytes: 0,
                    group: None,
                    lane: Lane::Cold,
                    again: None,
                });
                state.record(sequence, result, attempts);
            }
        }
        drop(state);
        self.results.notify_one();
    }
}

impl ClaimedRow {
    /// What the row says, now that it was claimed again.
    fn learn(&mut self, row: &Claim) {
        self.attempts = row.attempts;
        self.takeovers = row.takeovers;
    }

    /// Its lease had ended, and this node was the first to notice: what is being done goes on under
    /// the new token. If that is done and only not recorded yet, it may have to be done again.
    fn adopt(&mut self, token: i64, lease_until: Instant, again: impl FnOnce() -> Again) {
        self.token = token;
        self.lease_until = lease_until;
        if self.stage == Stage::Recording {
            self.again = Some(again());
        }
    }
}

impl State {
    /// Rows that are claimed again before they have begun here begin as the new claim says: somebody else
    /// may have had them meanwhile, have failed, or been lost with them. Gives the places of those that
    /// have left their lane.
    fn withdraw(&mut self, rows: &[(Claim, Option<usize>)]) -> HashMap<i64, u64> {
        let sequences = rows.iter().map(|(row, _)| row.sequence);
        let again: HashSet<i64> = sequences.filter(|sequence| self.is_queued(*sequence)).collect();
        let mut places = HashMap::new();
        if again.is_empty() {
            return places;
        }
        for entry in self.extract(|entry| again.contains(&entry.sequence)) {
            places.extend(entry.place.map(|place| (entry.sequence, place)));
            self.vacate(entry.group, entry.lane);
            if let Some(held) = self.held.remove(&entry.sequence) {
                self.let_go(held.group, held.lane, held.bytes);
            }
        }
        places
    }

    fn is_queued(&self, sequence: i64) -> bool {
        self.held.get(&sequence).is_some_and(|held| held.stage == Stage::Queued)
    }

    /// The entry of a row that has not begun, taken out of where it waits.
    fn waiting(&mut self, sequence: i64) -> Option<QueuedEvent> {
        self.is_queued(sequence).then(|| self.extract(|entry| entry.sequence == sequence).pop())?
    }

    pub(super) fn admit(
        &mut self,
        row: Claim,
        group: Option<usize>,
        lease_until: Instant,
        place: Option<u64>,
    ) {
        let sequence = row.sequence;
        if let Some(held) = self.held.get_mut(&sequence) {
            held.learn(&row);
            held.adopt(row.token, lease_until, || Again::Deliver(Box::new(row), group));
            return;
        }
        let held = ClaimedRow::of(&row, group, lease_until, self.clock.now());
        let bytes = held.bytes;
        self.bytes += bytes;
        self.held.insert(sequence, held);
        if let Some(group) = group.and_then(|group| self.groups.get_mut(group)) {
            group.cold.in_flight += 1;
            group.bytes += bytes;
        }
        self.occupy(group, Lane::Cold);
        let entry = QueuedEvent::claimed(row, group, place);
        match self.phase {
            Phase::Running | Phase::Draining if place.is_some() => self.lanes.push_ready(entry),
            Phase::Running | Phase::Draining => self.lanes.push(entry),
            // It was claimed while the node was being paused or closed.
            Phase::Paused | Phase::Closed => self.give_back(entry, Verdict::Released),
        }
    }

    /// An entry goes back to the table without having been started.
    pub(super) fn give_back(&mut self, entry: QueuedEvent, result: Verdict) {
        self.vacate(entry.group, entry.lane);
        if let Some(held) = self.held.get_mut(&entry.sequence) {
            held.stage = Stage::Recording;
            let (before, result) = (held.attempts, held.given_back(result));
            self.record(entry.sequence, result, before);
        }
    }

    /// A row is no longer in hand.
    pub(super) fn forget(&mut self, sequence: i64) {
        if let Some(held) = self.held.remove(&sequence) {
            self.let_go(held.group, held.lane, held.bytes);
            let now = self.clock.now();
            // Whose probe it was is not known of a row that was never meant for a listener.
            let groups = match held.group {
                Some(index) => self.groups.get_mut(index..=index),
                None => Some(&mut self.groups[..]),
            };
            groups.into_iter().flatten().for_each(|group| group.lost(sequence, now));
        }
    }

    /// Frees what a row or a seat has taken up.
    pub(super) fn let_go(&mut self, group: Option<usize>, lane: Lane, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(group) = group.and_then(|group| self.groups.get_mut(group)) {
            let load = group.load_mut(lane);
            load.in_flight = load.in_flight.saturating_sub(1);
            group.bytes = group.bytes.saturating_sub(bytes);
        }
    }
}
