use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::inflight::InFlight;
use crate::listener::Listeners;
use crate::metrics::Meter;
use crate::service::Service;

/// Reports every second what is known without asking the database: the depths of the queues, the numbers of paused
/// listeners and subscriptions, and whether this node delivers. It is a loop of its own, because these matter most while the database does not answer.
pub(super) struct Gauges {
    inflight: Arc<InFlight>,
    listeners: Arc<Listeners>,
    meter: Arc<Meter>,
    next: Instant,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl Gauges {
    pub(super) fn new(
        inflight: Arc<InFlight>,
        listeners: Arc<Listeners>,
        meter: Arc<Meter>,
    ) -> Self {
        Self { inflight, listeners, meter, next: Instant::now() }
    }
}

impl Service for Gauges {
    const NAME: &'static str = "gauges";
    const DOING: &'static str = "reporting queue depths";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
        }
        self.next = Instant::now() + INTERVAL;
        let (hot, cold) = self.inflight.depths();
        let paused = self.inflight.paused_listeners();
        self.meter.report(|exporter| exporter.queue_depth(hot, cold));
        self.meter.report(|exporter| exporter.paused_listeners(paused));
        let paused = self.inflight.paused_subscriptions(&self.listeners);
        self.meter.report(|exporter| exporter.paused_subscriptions(paused));
        let is_active = self.inflight.is_active();
        self.meter.report(|exporter| exporter.active(is_active));
        Ok(())
    }
}
