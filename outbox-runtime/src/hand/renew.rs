//! What the renewer does.

use std::collections::HashSet;
use std::time::Instant;

use super::Hand;
use super::held::Stage;
use crate::event::EventId;
use crate::store::Finished;

/// What has been in hand for a whole lease.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    /// Listeners that still run, and have not been told of before.
    pub(crate) running: Vec<EventId>,
    /// How many had not started and are given back.
    pub(crate) given_back: usize,
}

impl Hand {
    /// Waits until some entry cannot start because its lease is too short.
    pub(crate) async fn short_lease(&self) {
        loop {
            let woken = self.leases.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if !self.lock().short.is_empty() {
                return;
            }
            woken.await;
        }
    }

    /// The rows whose lease is to be renewed: those that have used a third of it.
    pub(crate) fn to_renew(&self) -> Vec<(i64, i64)> {
        let soon = Instant::now() + self.limits.lease * 2 / 3;
        let state = self.lock();
        let due = state.held.iter().filter(|(_, held)| held.lease_until < soon);
        due.map(|(sequence, held)| (*sequence, held.token)).collect()
    }

    /// What was asked to be renewed, and what was. Gives how many were lost: those that had not
    /// started are dropped, as they are somebody else's now.
    pub(crate) fn renewed(
        &self,
        anchor: Instant,
        asked: &[(i64, i64)],
        renewed: &HashSet<i64>,
    ) -> usize {
        let now = Instant::now();
        let mut lost = HashSet::new();
        let mut state = self.lock();
        for (sequence, token) in asked {
            let Some(held) = state.held.get_mut(sequence) else { continue };
            if held.token != *token {
                continue;
            }
            if renewed.contains(sequence) {
                held.lease_until = anchor + self.limits.lease;
            } else if held.stage == Stage::Queued
                && held.lease_until.saturating_duration_since(now) < self.limits.lease / 3
            {
                lost.insert(*sequence);
            }
        }
        let dropped = state.extract(|entry| lost.contains(&entry.sequence));
        for entry in &dropped {
            state.lanes.free(entry.lane);
            state.forget(entry.sequence);
        }
        let short = std::mem::take(&mut state.short);
        short.into_iter().for_each(|entry| state.lanes.push_ready(entry));
        drop(state);
        self.wake_all();
        dropped.len()
    }

    /// What has been here for a whole lease: what waits is given back, so that another node can have
    /// it.
    pub(crate) fn overdue(&self) -> Overdue {
        let (now, lease) = (Instant::now(), self.limits.lease);
        let mut overdue = Overdue::default();
        let mut state = self.lock();
        let mut late = HashSet::new();
        for (sequence, held) in &mut state.held {
            match &mut held.stage {
                Stage::Queued if now.duration_since(held.since) >= lease => {
                    late.insert(*sequence);
                }
                Stage::Running { since, warned: warned @ false }
                    if now.duration_since(*since) >= lease =>
                {
                    *warned = true;
                    overdue.running.extend(held.event_id);
                }
                Stage::Queued | Stage::Running { .. } | Stage::Recording => {}
            }
        }
        if !late.is_empty() {
            let waiting = state.extract(|entry| late.contains(&entry.sequence));
            overdue.given_back = waiting.len();
            waiting.into_iter().for_each(|entry| state.give_back(entry, Finished::Released));
        }
        drop(state);
        if overdue.given_back > 0 {
            self.results.notify_one();
            self.room.notify_one();
        }
        overdue
    }
}
