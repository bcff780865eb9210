use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Poller;
use crate::event::EventEnvelope;
use crate::inflight::{InFlight, QueuedEvent};
use crate::listener::Topics;
use crate::metrics::MetricsExporter;
use crate::service::within;
use crate::store::{Backend, Claim, Lease, Renewal, Verdict};

/// Takes the place of the dispatcher: receives what the poller has claimed, and finishes each event
/// itself.
pub trait PollerHandler: Send + Sync {
    /// How many events it can take. With zero nothing is claimed.
    fn available_capacity(&self) -> usize;

    /// Takes an event. `false` ends the round: what else was claimed is given back.
    fn handle(&self, claimed: ClaimedEvent, attempts: u32) -> bool;
}

/// An event that this node has claimed. Its lease is renewed for as long as this exists; if it is
/// dropped unfinished, the event returns when the lease has ended.
#[must_use = "finish it with `done`, `retry` or `dead`"]
pub struct ClaimedEvent {
    inflight: Arc<InFlight>,
    entry: QueuedEvent,
    finished: bool,
    metrics: Arc<dyn MetricsExporter>,
    topics: Arc<Topics>,
}

impl std::fmt::Debug for ClaimedEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClaimedEvent").field(&self.entry.envelope).finish()
    }
}

impl ClaimedEvent {
    /// The event.
    pub fn envelope(&self) -> &EventEnvelope {
        &self.entry.envelope
    }

    /// It is delivered.
    pub fn done(self) {
        self.finish(Verdict::Done);
    }

    /// It failed, and is to be tried again after a delay.
    pub fn retry(self, delay: Duration, error: impl Into<String>) {
        let attempts = self.entry.attempts.saturating_add(1);
        self.finish(Verdict::Retry { attempts, delay, error: error.into() });
    }

    /// It failed for good.
    pub fn dead(self, error: impl Into<String>) {
        let attempts = self.entry.attempts.saturating_add(1);
        let (event, error) = (&self.entry.envelope, error.into());
        tracing::error!(
            event_id = %event.event_id(), event_type = event.event_type(), attempts, error,
            "an event is dead"
        );
        self.metrics.died(self.topics.of_type(event.event_type()), 1);
        self.finish(Verdict::Dead { attempts, error });
    }

    fn release(self) {
        self.finish(Verdict::Released);
    }

    fn finish(mut self, result: Verdict) {
        self.finished = true;
        self.inflight.finish(&self.entry, result);
    }
}

impl Drop for ClaimedEvent {
    fn drop(&mut self) {
        if !self.finished {
            self.inflight.abandon(&self.entry);
        }
    }
}

impl<DB: Backend> Poller<DB> {
    /// Hands claimed rows to somebody else.
    pub(super) async fn hand_over(
        &self,
        handler: &dyn PollerHandler,
        rows: Vec<Claim>,
        anchor: Instant,
    ) {
        let mut going_on = true;
        for row in self.tried(rows, anchor).await {
            let attempts = row.attempts;
            let Some(entry) = self.inflight.checkout(row, anchor) else { continue };
            let claimed = ClaimedEvent {
                inflight: Arc::clone(&self.inflight),
                entry,
                finished: false,
                metrics: Arc::clone(&self.metrics),
                topics: Arc::clone(&self.topics),
            };
            if going_on {
                let handle = AssertUnwindSafe(|| handler.handle(claimed, attempts));
                going_on = catch_unwind(handle).unwrap_or_else(|_| {
                    tracing::error!("a poller handler panicked");
                    false
                });
            } else {
                claimed.release();
            }
        }
    }

    /// Writes down which of the rows whose owner was lost are begun now; gives back the others.
    async fn tried(&self, rows: Vec<Claim>, anchor: Instant) -> Vec<Claim> {
        if !rows.iter().any(Claim::is_suspect) {
            return rows;
        }
        let chosen = self.inflight.may_be_tried(&rows);
        let begun: Vec<Renewal> = rows
            .iter()
            .filter(|row| chosen.contains(&row.sequence))
            .map(|row| Renewal { takeovers: row.takeovers.saturating_add(1), ..row.into() })
            .collect();
        let lease = Lease { owner: &self.owner, length: self.inflight.lease() };
        let renewal = self.store.renew(lease, &begun);
        let written: HashSet<i64> =
            match within(self.statement_timeout, "renewing leases", renewal).await {
                Ok(written) => written.into_iter().collect(),
                Err(error) => {
                    tracing::debug!(%error, "events whose owner was lost are given back");
                    HashSet::new()
                }
            };
        let mut kept = Vec::new();
        for mut row in rows {
            if written.contains(&row.sequence) {
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
