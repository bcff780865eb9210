use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::hand::Hand;
use crate::metrics::MetricsExporter;
use crate::run::{Service, within};
use crate::store::{Backend, Lease, Store};

/// Keeps what is in hand ours: renews every lease when a third of it is over.
pub(crate) struct Renewer<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) hand: Arc<Hand>,
    pub(crate) owner: Arc<str>,
    pub(crate) metrics: Arc<dyn MetricsExporter>,
    pub(crate) patience: Duration,
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
            () = self.hand.renewal_wanted() => {}
        }
        let renewed = self.renew().await;
        // A sixth, so that none waits longer than half of its lease.
        self.next = Instant::now() + self.hand.lease() / 6;
        renewed
    }
}

impl<DB: Backend> Renewer<DB> {
    pub(crate) async fn renew(&self) -> Result<(), Error> {
        let held = self.hand.to_renew();
        for batch in held.chunks(BATCH) {
            let lease = Lease { owner: &self.owner, length: self.hand.lease() };
            let anchor = self.hand.now();
            let renewal = self.store.renew(lease, batch);
            let renewed = within(self.patience, "renewing leases", renewal).await?;
            let renewed: HashSet<i64> = renewed.into_iter().collect();
            let lost = self.hand.renewed(anchor, batch, &renewed);
            if lost > 0 {
                self.metrics.leases_lost(lost);
                tracing::warn!(events = lost, "leases ended before the events could be started");
            }
        }
        if held.is_empty() {
            self.hand.renewed(self.hand.now(), &[], &HashSet::new());
        }
        let overdue = self.hand.overdue();
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
