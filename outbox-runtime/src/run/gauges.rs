use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::service::Service;
use crate::Error;
use crate::hand::Hand;
use crate::metrics::MetricsExporter;

/// Tells every second what is known without asking the database: the depths of the queues, and how many
/// listeners pause. It is a loop of its own, because these matter most while the database does not answer.
pub(super) struct Gauges {
    hand: Arc<Hand>,
    metrics: Arc<dyn MetricsExporter>,
    next: Instant,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl Gauges {
    pub(super) fn new(hand: Arc<Hand>, metrics: Arc<dyn MetricsExporter>) -> Self {
        Self { hand, metrics, next: Instant::now() }
    }
}

impl Service for Gauges {
    const NAME: &'static str = "gauges";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
        }
        self.next = Instant::now() + INTERVAL;
        let (hot, cold) = self.hand.depths();
        self.metrics.queue_depth(hot, cold);
        self.metrics.paused_listeners(self.hand.paused());
        Ok(())
    }
}
