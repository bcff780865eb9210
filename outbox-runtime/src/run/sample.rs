use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::service::{Seldom, Service, within};
use crate::Error;
use crate::hand::Hand;
use crate::metrics::MetricsExporter;
use crate::store::{Backend, Store, Subscription};

/// Reads how things stand, from time to time. What is read stands until the next time, however often
/// somebody asks for it.
pub(super) struct Sampler<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) hand: Arc<Hand>,
    pub(super) subscription: Subscription,
    pub(super) metrics: Arc<dyn MetricsExporter>,
    pub(super) patience: Duration,
    pub(super) unknown: Seldom,
    pub(super) next: Instant,
}

const INTERVAL: Duration = Duration::from_secs(15);
/// Reading may take this part of the time at most: where the table is large or the database slow, it is
/// done less often.
const SHARE: u32 = 100;
const LONGEST_INTERVAL: Duration = Duration::from_secs(10 * 60);

impl<DB: Backend> Service for Sampler<DB> {
    const NAME: &'static str = "sampler";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
        }
        let (hot, cold) = self.hand.depths();
        self.metrics.queue_depth(hot, cold);
        self.metrics.paused_listeners(self.hand.paused());
        let begun = Instant::now();
        let stats = self.store.stats(&self.subscription);
        let stats = within(self.patience, "reading statistics", stats).await;
        // A failure is no slow reading: the database may be back soon.
        self.next = Instant::now() + INTERVAL;
        let stats = stats?;
        let rest = begun.elapsed().saturating_mul(SHARE).clamp(INTERVAL, LONGEST_INTERVAL);
        self.next = Instant::now() + rest;
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
