//! Leases: every fraction of one that decides anything, and which rows are renewed.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::quarantine::Suspicion;
use super::row::{ClaimedRow, Stage};
use super::{InFlight, State};
use crate::event::{EventId, Verdict};
use crate::listener::ListenerId;
use crate::store::Renewal;

/// How long a claim lasts, and every time that follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseTiming {
    length: Duration,
}

impl LeaseTiming {
    pub(crate) const fn new(length: Duration) -> Self {
        Self { length }
    }

    pub(crate) const fn length(self) -> Duration {
        self.length
    }

    /// Returns when a lease expires that was asked for at `anchor`.
    pub(crate) fn until(self, anchor: Instant) -> Instant {
        anchor + self.length
    }

    /// Returns whether a listener may start: not with less than a third of the lease left.
    pub(crate) fn may_start(self, lease_until: Instant, now: Instant) -> bool {
        lease_until.saturating_duration_since(now) >= self.length / 3
    }

    /// Returns whether a lease is due for renewal: when a third of it has passed.
    fn is_due(self, lease_until: Instant, now: Instant) -> bool {
        lease_until < now + self.length * 2 / 3
    }

    /// Returns the time between two renewals: a sixth, so that no lease is renewed later than half-way.
    pub(crate) fn renewal_interval(self) -> Duration {
        self.length / 6
    }

    /// Returns whether a row has been queued, or a call has been running, for a whole lease.
    fn is_overdue(self, since: Instant, now: Instant) -> bool {
        now.duration_since(since) >= self.length
    }

    /// Returns how long a statement of the relay may take: a third of the lease, so that a renewal that gets no
    /// answer can be tried again.
    pub(crate) fn statement_timeout(self) -> Duration {
        (self.length / 3).clamp(Duration::from_millis(500), Duration::from_secs(10))
    }

    /// Returns the longest pause of a loop while the database is down: short, so that its return is soon
    /// noticed, and a sixth of the lease at most, so that a lease can be renewed in time then.
    pub(crate) fn longest_pause(self) -> Duration {
        (self.length / 6).min(Duration::from_secs(2))
    }

    /// Returns the default time-out of a listener whose transaction keeps all others from writing.
    pub(crate) fn exclusive_call_timeout(self) -> Duration {
        Duration::from_secs(5).min(self.statement_timeout() / 2)
    }
}

/// Rows that have been in flight for a whole lease.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    /// Calls that still run, and were not reported before.
    pub(crate) running: Vec<LongCall>,
    /// How many rows had not started and are given back.
    pub(crate) given_back: usize,
}

/// A call that runs for longer than a lease.
#[derive(Debug)]
pub(crate) struct LongCall {
    pub(crate) event_id: Option<EventId>,
    /// `None` if a handler works on the event.
    pub(crate) listener: Option<ListenerId>,
    pub(crate) running_for: Duration,
}

impl InFlight {
    /// Waits until an event cannot start before its lease is renewed.
    pub(crate) async fn renewal_needed(&self) {
        loop {
            let woken = self.leases.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if self.needs_renewal() {
                return;
            }
            woken.await;
        }
    }

    /// Returns whether an event cannot start before its lease is renewed.
    pub(crate) fn needs_renewal(&self) -> bool {
        self.lock().needs_renewal(self.limits.suspects)
    }

    /// Returns the leases to renew: those that are due, and those of suspects that are about to start.
    pub(crate) fn to_renew(&self) -> Vec<Renewal> {
        let state = self.lock();
        let (now, lease) = (state.clock.now(), self.limits.lease);
        let suspects = state.next_suspects(self.limits.suspects);
        let renewal = |(sequence, row): (&i64, &ClaimedRow)| {
            let is_tried = suspects.contains(sequence);
            (is_tried || lease.is_due(row.lease_until, now)).then(|| Renewal {
                sequence: *sequence,
                token: row.token,
                takeovers: row.takeovers.saturating_add(u32::from(is_tried)),
            })
        };
        state.rows.iter().filter_map(renewal).collect()
    }

    /// Applies the answer to a renewal. Returns how many rows were lost: those that had not started are
    /// dropped, because another node has claimed them.
    pub(crate) fn renewed(
        &self,
        anchor: Instant,
        asked: &[Renewal],
        renewed: &HashSet<i64>,
    ) -> usize {
        let mut lost = HashSet::new();
        let mut state = self.lock();
        let (now, lease) = (state.clock.now(), self.limits.lease);
        for Renewal { sequence, token, takeovers } in asked {
            let Some(row) = state.rows.get_mut(sequence) else { continue };
            if row.token != *token {
                continue;
            }
            let is_tried = *takeovers > row.takeovers;
            if renewed.contains(sequence) {
                row.lease_until = lease.until(anchor);
                row.takeovers = *takeovers;
                if is_tried {
                    row.suspicion = Suspicion::StartRecorded;
                }
            } else if row.stage == Stage::Queued
                && (is_tried || !lease.may_start(row.lease_until, now))
            {
                lost.insert(*sequence);
            }
        }
        state.queue_started();
        let dropped = state.extract(|event| lost.contains(&event.sequence));
        for event in &dropped {
            state.vacate(event.listener, event.lane);
            state.forget(event.sequence);
        }
        let expiring = std::mem::take(&mut state.expiring);
        expiring.into_iter().for_each(|event| state.queue.push_ready(event));
        drop(state);
        self.wake_all();
        dropped.len()
    }

    /// Gives back rows that have been queued for a whole lease, so that another node can take them, and returns
    /// calls that have been running for as long.
    pub(crate) fn overdue(&self) -> Overdue {
        let mut overdue = Overdue::default();
        let mut state = self.lock();
        let (now, lease) = (state.clock.now(), self.limits.lease);
        let mut late = HashSet::new();
        let State { rows, runs, .. } = &mut *state;
        // No other node could start a row that waits for one that is in flight here.
        let waits = |sequence: i64, row: &ClaimedRow| {
            let run = row.aggregate.as_ref().and_then(|key| runs.get(key));
            run.is_some_and(|run| run.has_waiting(sequence))
        };
        for (sequence, row) in rows {
            let waits = waits(*sequence, row);
            match &mut row.stage {
                // No other node would take it, and it would lose its place.
                Stage::Queued if self.limits.in_sequence => {}
                Stage::Queued if !waits && lease.is_overdue(row.since, now) => {
                    late.insert(*sequence);
                }
                Stage::Running { since, warned: warned @ false }
                    if lease.is_overdue(*since, now) =>
                {
                    *warned = true;
                    overdue.running.push(LongCall {
                        event_id: row.event_id,
                        listener: row.listener,
                        running_for: now.duration_since(*since),
                    });
                }
                Stage::Queued | Stage::Running { .. } | Stage::Recording => {}
            }
        }
        if !late.is_empty() {
            let waiting = state.extract(|event| late.contains(&event.sequence));
            overdue.given_back = waiting.len();
            waiting.into_iter().for_each(|event| state.give_back(event, Verdict::Released));
        }
        drop(state);
        if overdue.given_back > 0 {
            self.results.notify_one();
            self.capacity.notify_one();
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: LeaseTiming = LeaseTiming::new(Duration::from_secs(30));

    #[test]
    fn a_lease_is_renewed_before_a_start_would_be_refused() {
        let asked = Instant::now();
        let (until, second) = (LEASE.until(asked), Duration::from_secs(1));
        assert!(!LEASE.is_due(until, asked + second * 9));
        assert!(LEASE.is_due(until, asked + second * 11));
        assert!(LEASE.may_start(until, asked + second * 20));
        assert!(!LEASE.may_start(until, asked + second * 21));
        let renewed_by = LEASE.length() / 3 + LEASE.renewal_interval();
        assert!(LEASE.may_start(until, asked + renewed_by), "with one interval to spare");
    }

    #[test]
    fn times_of_the_relay_are_bounded_for_every_lease() {
        for (seconds, statement, pause, exclusive) in [
            (1, 500, 166, 250),
            (3, 1_000, 500, 500),
            (30, 10_000, 2_000, 5_000),
            (3_600, 10_000, 2_000, 5_000),
        ] {
            let lease = LeaseTiming::new(Duration::from_secs(seconds));
            let millis = |time: Duration| time.as_millis();
            assert_eq!(millis(lease.statement_timeout()), statement, "{seconds}");
            assert_eq!(millis(lease.longest_pause()), pause, "{seconds}");
            assert_eq!(millis(lease.exclusive_call_timeout()), exclusive, "{seconds}");
        }
    }
}
