use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Poller;
use crate::catch_panic::catch;
use crate::event::{EventEnvelope, Verdict};
use crate::inflight::{InFlight, QueuedEvent};
use crate::metrics::Meter;
use crate::service::within;
use crate::store::{Backend, Claim, Lease, Renewal};

/// Takes the place of the dispatcher: receives claimed events, and finishes each of them itself.
pub trait PollerHandler: Send + Sync {
    /// Returns how many events it can take. With zero nothing is claimed.
    fn available_capacity(&self) -> usize;

    /// Takes an event. `false` ends the round: the other claimed events are released.
    fn handle(&self, claimed: ClaimedEvent, attempts: u32) -> bool;
}

/// An event that this node has claimed. Its lease is renewed for as long as this exists; if it is dropped
/// unfinished, the event becomes available when the lease expires.
#[must_use = "finish it with `done`, `retry` or `dead`"]
pub struct ClaimedEvent {
    inflight: Arc<InFlight>,
    event: QueuedEvent,
    finished: bool,
    meter: Arc<Meter>,
}

impl std::fmt::Debug for ClaimedEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClaimedEvent").field(&self.event.envelope).finish()
    }
}

impl ClaimedEvent {
    /// Returns the event.
    pub fn envelope(&self) -> &EventEnvelope {
        &self.event.envelope
    }

    /// The event was delivered.
    pub fn done(self) {
        self.finish(Verdict::Done);
    }

    /// The attempt failed; the event is to be tried again after a delay.
    pub fn retry(self, delay: Duration, error: impl Into<String>) {
        let attempts = self.event.attempts.saturating_add(1);
        self.finish(Verdict::Retry { attempts, delay, error: error.into() });
    }

    /// The event is given up.
    pub fn dead(self, error: impl Into<String>) {
        let attempts = self.event.attempts.saturating_add(1);
        self.finish(Verdict::Dead { attempts, error: error.into() });
    }

    fn finish(mut self, verdict: Verdict) {
        self.finished = true;
        self.meter.dead_if(self.event.sequence, &self.event.envelope, &verdict);
        self.inflight.finish(&self.event, verdict);
    }
}

impl Drop for ClaimedEvent {
    fn drop(&mut self) {
        if !self.finished {
            self.inflight.abandon(&self.event);
        }
    }
}

impl<DB: Backend> Poller<DB> {
    /// Passes claimed rows to a handler.
    pub(super) async fn pass_to(
        &self,
        handler: &dyn PollerHandler,
        rows: Vec<Claim>,
        anchor: Instant,
    ) {
        let mut goes_on = true;
        for row in self.record_starts(rows, anchor).await {
            let attempts = row.attempts;
            let Some(event) = self.inflight.admit_external(row, anchor) else { continue };
            let claimed = ClaimedEvent {
                inflight: Arc::clone(&self.inflight),
                event,
                finished: false,
                meter: Arc::clone(&self.meter),
            };
            if goes_on {
                let handled = catch(|| handler.handle(claimed, attempts));
                goes_on = handled.unwrap_or_else(|panic| {
                    tracing::error!(place = panic.place(), "a poller handler panicked");
                    false
                });
            } else {
                claimed.finish(Verdict::Released);
            }
        }
    }

    /// Records which suspects are started now, and releases the others. Returns the rows to work on.
    async fn record_starts(&self, rows: Vec<Claim>, anchor: Instant) -> Vec<Claim> {
        if !rows.iter().any(Claim::is_suspect) {
            return rows;
        }
        let chosen = self.inflight.may_be_tried(&rows);
        let started: Vec<Renewal> = rows
            .iter()
            .filter(|row| chosen.contains(&row.sequence))
            .map(|row| Renewal { takeovers: row.takeovers.saturating_add(1), ..row.into() })
            .collect();
        let lease = Lease { owner: &self.owner, length: self.inflight.lease().length() };
        let renewal = self.store.renew(lease, &started);
        let renewed = within(self.statement_timeout, "renewing leases", renewal).await;
        let recorded: HashSet<i64> = match renewed {
            Ok(recorded) => recorded.into_iter().collect(),
            Err(error) => {
                tracing::debug!(%error, "events whose owner was lost are released");
                HashSet::new()
            }
        };
        let mut kept = Vec::new();
        for mut row in rows {
            if recorded.contains(&row.sequence) {
                row.takeovers = row.takeovers.saturating_add(1);
            } else if row.is_suspect() {
                self.inflight.settle(row.sequence, row.token, Verdict::Released, anchor);
                continue;
            }
            kept.push(row);
        }
        kept
    }
}
