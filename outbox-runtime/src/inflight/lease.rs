//! What the renewer does.

use std::collections::HashSet;
use std::time::Instant;

use super::InFlight;
use super::row::{ClaimedRow, Stage, Trial};
use crate::event::EventId;
use crate::store::{Renewal, Verdict};

/// What has been in hand for a whole lease.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    /// Listeners that still run, and have not been told of before.
    pub(crate) running: Vec<EventId>,
    /// How many had not started and are given back.
    pub(crate) given_back: usize,
}

impl InFlight {
    /// Waits until some entry cannot start before its lease is renewed.
    pub(crate) async fn renewal_wanted(&self) {
        loop {
            let woken = self.leases.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if self.lock().wants_renewal(self.limits.trials) {
                return;
            }
            woken.await;
        }
    }

    /// Whether some entry cannot start before its lease is renewed.
    #[cfg(feature = "testing")]
    pub(crate) fn wants_renewal(&self) -> bool {
        self.lock().wants_renewal(self.limits.trials)
    }

    /// The rows whose lease is to be renewed: those that have used a third of it, and those that are
    /// to be tried.
    pub(crate) fn to_renew(&self) -> Vec<Renewal> {
        let state = self.lock();
        let soon = state.clock.now() + self.limits.lease * 2 / 3;
        let trials = state.next_trials(self.limits.trials);
        let renewal = |(sequence, held): (&i64, &ClaimedRow)| {
            let tried = trials.contains(sequence);
            (tried || held.lease_until < soon).then(|| Renewal {
                sequence: *sequence,
                token: held.token,
                takeovers: held.takeovers.saturating_add(u32::from(tried)),
            })
        };
        state.held.iter().filter_map(renewal).collect()
    }

    /// What was asked to be renewed, and what was. Gives how many were lost: those that had not
    /// started are dropped, as they are somebody else's now.
    pub(crate) fn renewed(
        &self,
        anchor: Instant,
        asked: &[Renewal],
        renewed: &HashSet<i64>,
    ) -> usize {
        let mut lost = HashSet::new();
        let mut state = self.lock();
        let now = state.clock.now();
        for Renewal { sequence, token, takeovers } in asked {
            let Some(held) = state.held.get_mut(sequence) else { continue };
            if held.token != *token {
                continue;
            }
            let tried = *takeovers > held.takeovers;
            let short = held.lease_until.saturating_duration_since(now) < self.limits.lease / 3;
            if renewed.contains(sequence) {
                held.lease_until = anchor + self.limits.lease;
                held.takeovers = *takeovers;
                if tried {
                    held.trial = Trial::Begun;
                }
            } else if held.stage == Stage::Queued && (short || tried) {
                lost.insert(*sequence);
            }
        }
        state.begin_trials();
        let dropped = state.extract(|entry| lost.contains(&entry.sequence));
        for entry in &dropped {
            state.vacate(entry.group, entry.lane);
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
        let mut overdue = Overdue::default();
        let mut state = self.lock();
        let (now, lease) = (state.clock.now(), self.limits.lease);
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
            waiting.into_iter().for_each(|entry| state.give_back(entry, Verdict::Released));
        }
        drop(state);
        if overdue.given_back > 0 {
            self.results.notify_one();
            self.room.notify_one();
        }
        overdue
    }
}
