use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::inflight::InFlight;
use crate::metrics::MetricsExporter;
use crate::service::Service;

/// Tells every second what is known without asking the database: the depths of the queues, and how many
/// listeners pause. It is a loop of its own, because these matter most while the database does not answer.
pub(super) struct Gauges {
    inflight: Arc<InFlight>,
    metrics: Arc<dyn MetricsExporter>,
    next: Instant,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl Gauges {
    pub(super) fn new(inflight: Arc<InFlight>, metrics: Arc<dyn MetricsExporter>) -> Self {
        Self { inflight, metrics, next: Instant::now() }
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
        let (hot, cold) = self.inflight.depths();
        self.metrics.queue_depth(hot, cold);
        self.metrics.paused_listeners(self.inflight.paused());
        Ok(())
    }
}
