use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::inflight::InFlight;
use crate::listener::Listeners;
use crate::metrics::Meter;
use crate::service::{Service, within};
use crate::store::{Backend, Lease, Store};

/// Renews the leases of the events in flight, each between a third and a half of it.
pub(crate) struct Renewer<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) owner: Arc<str>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) statement_timeout: Duration,
    pub(crate) next: Instant,
}

/// The most rows in one statement.
const BATCH: usize = 1_000;

impl<DB: Backend> Service for Renewer<DB> {
    const NAME: &'static str = "lease renewal";
    const DOING: &'static str = "renewing leases";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        // Without a lease to renew, it cannot tell whether the database answers.
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep_until(self.next.into()) => {}
                () = self.inflight.renewal_needed() => {}
            }
            let renewed = self.renew().await;
            self.next = Instant::now() + self.inflight.lease().renewal_interval();
            if renewed? > 0 {
                return Ok(());
            }
        }
    }
}

impl<DB: Backend> Renewer<DB> {
    /// Renews the leases that are due; returns how many those are.
    pub(crate) async fn renew(&self) -> Result<usize, Error> {
        let rows = self.inflight.to_renew();
        for batch in rows.chunks(BATCH) {
            let lease = Lease { owner: &self.owner, length: self.inflight.lease().length() };
            let anchor = self.inflight.now();
            let renewal = self.store.renew(lease, batch);
            let renewed = within(self.statement_timeout, "renewing leases", renewal).await?;
            let renewed: HashSet<i64> = renewed.into_iter().collect();
            let lost = self.inflight.renewed(anchor, batch, &renewed);
            if lost > 0 {
                self.meter.report(|exporter| exporter.leases_lost(lost));
                tracing::warn!(events = lost, "leases expired before the events could be started");
            }
        }
        if rows.is_empty() {
            self.inflight.renewed(self.inflight.now(), &[], &HashSet::new());
        }
        let overdue = self.inflight.overdue();
        for call in overdue.running {
            tracing::warn!(
                listener = self.listeners.log_name(call.listener),
                event_id = call.event_id.map(tracing::field::display),
                running_for = ?call.running_for,
                "a listener has been running for longer than a lease, which is renewed meanwhile; if it hangs, \
                 set its `timeout`"
            );
        }
        if overdue.given_back > 0 {
            tracing::warn!(
                events = overdue.given_back,
                "events could not be started within a lease; they are released for other nodes"
            );
        }
        Ok(rows.len())
    }
}
