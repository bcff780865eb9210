use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::inflight::InFlight;
use crate::metrics::MetricsExporter;
use crate::service::{Service, within};
use crate::store::{Backend, Lease, Store};

/// Keeps what is in hand ours: renews every lease when a third of it is over.
pub(crate) struct Renewer<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) owner: Arc<str>,
    pub(crate) metrics: Arc<dyn MetricsExporter>,
    pub(crate) statement_timeout: Duration,
    pub(crate) next: Instant,
}

/// The most rows in one statement.
const BATCH: usize = 1_000;

impl<DB: Backend> Service for Renewer<DB> {
    const NAME: &'static str = "lease renewal";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
            () = self.inflight.renewal_wanted() => {}
        }
        let renewed = self.renew().await;
        // A sixth, so that none waits longer than half of its lease.
        self.next = Instant::now() + self.inflight.lease() / 6;
        renewed
    }
}

impl<DB: Backend> Renewer<DB> {
    pub(crate) async fn renew(&self) -> Result<(), Error> {
        let held = self.inflight.to_renew();
        for batch in held.chunks(BATCH) {
            let lease = Lease { owner: &self.owner, length: self.inflight.lease() };
            let anchor = self.inflight.now();
            let renewal = self.store.renew(lease, batch);
            let renewed = within(self.statement_timeout, "renewing leases", renewal).await?;
            let renewed: HashSet<i64> = renewed.into_iter().collect();
            let lost = self.inflight.renewed(anchor, batch, &renewed);
            if lost > 0 {
                self.metrics.leases_lost(lost);
                tracing::warn!(events = lost, "leases ended before the events could be started");
            }
        }
        if held.is_empty() {
            self.inflight.renewed(self.inflight.now(), &[], &HashSet::new());
        }
        let overdue = self.inflight.overdue();
        for event_id in overdue.running {
            tracing::warn!(%event_id, "a listener has been running for a whole lease");
        }
        if overdue.given_back > 0 {
            tracing::warn!(
                events = overdue.given_back,
                "events that could not be started within a lease are given back"
            );
        }
        Ok(())
    }
}
