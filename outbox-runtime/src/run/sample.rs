use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::service::{Seldom, Service, within};
use crate::Error;
use crate::hand::Hand;
use crate::metrics::MetricsExporter;
use crate::store::{Backend, Store, Subscription};

/// Reads how things stand, from time to time.
pub(super) struct Sampler<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) hand: Arc<Hand>,
    pub(super) subscription: Subscription,
    pub(super) metrics: Arc<dyn MetricsExporter>,
    pub(super) patience: Duration,
    pub(super) unknown: Seldom,
}

const INTERVAL: Duration = Duration::from_secs(30);

impl<DB: Backend> Service for Sampler<DB> {
    const NAME: &'static str = "sampler";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let (hot, cold) = self.hand.depths();
        self.metrics.queue_depth(hot, cold);
        self.metrics.paused_listeners(self.hand.paused());
        let stats = self.store.stats(&self.subscription);
        let stats = within(self.patience, "reading statistics", stats).await?;
        self.metrics.table(&stats);
        if stats.unknown > 0 && self.unknown.is_time() {
            tracing::warn!(
                events = stats.unknown,
                "events are pending that nobody in this process listens to"
            );
        }
        Ok(())
    }
}
