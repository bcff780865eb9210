use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::log_throttle::LogThrottle;
use crate::metrics::MetricsExporter;
use crate::service::{Service, within};
use crate::store::{Backend, Store, TypeFilter};

/// Reads how the table stands, from time to time. What is read stands until the next time, however often
/// somebody asks for it.
pub(super) struct Sampler<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) subscription: TypeFilter,
    pub(super) metrics: Arc<dyn MetricsExporter>,
    pub(super) statement_timeout: Duration,
    pub(super) unknown: LogThrottle,
    pub(super) next: Instant,
    /// How many times the table is not read.
    pub(super) left_out: u32,
}

const INTERVAL: Duration = Duration::from_secs(15);
/// Reading may take this part of the time at most: where the table is large or the database slow, it is
/// done less often.
const SHARE: u32 = 100;
const LONGEST_REST: Duration = Duration::from_secs(10 * 60);

/// How many intervals a reading that took so long is followed by, at least one.
fn rest_after(took: Duration) -> u32 {
    let rest = took.saturating_mul(SHARE).clamp(INTERVAL, LONGEST_REST);
    u32::try_from(rest.as_secs() / INTERVAL.as_secs()).unwrap_or(u32::MAX)
}

impl<DB: Backend> Service for Sampler<DB> {
    const NAME: &'static str = "sampler";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
        }
        self.next = Instant::now() + INTERVAL;
        if self.left_out > 0 {
            self.left_out -= 1;
            return Ok(());
        }
        let begun = Instant::now();
        let stats = self.store.stats(&self.subscription);
        let stats = within(self.statement_timeout, "reading statistics", stats).await;
        self.store.let_go();
        // A failure is no slow reading: the database may be back soon. Silence is one.
        if matches!(stats, Ok(_) | Err(Error::TimedOut { .. })) {
            self.left_out = rest_after(begun.elapsed()) - 1;
        }
        let stats = stats?;
        self.metrics.table(&stats);
        if stats.unknown > 0 && self.unknown.allows() {
            tracing::warn!(
                events = stats.unknown,
                "events are pending that nobody in this process listens to"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reading_is_followed_by_a_long_rest() {
        for (millis, intervals) in [(0, 1), (150, 1), (299, 1), (300, 2), (2_000, 13), (60_000, 40)]
        {
            assert_eq!(rest_after(Duration::from_millis(millis)), intervals, "{millis}");
        }
    }
}
