use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::unroutable::UnroutableTypes;
use crate::Error;
use crate::metrics::Meter;
use crate::service::{Service, within};
use crate::store::{Backend, Store, TypeFilter};

/// Reads the state of the table from time to time. The figures stay the same until the next time, however often
/// they are scraped.
pub(super) struct Sampler<DB: Backend> {
    store: Store<DB>,
    handled: TypeFilter,
    meter: Arc<Meter>,
    statement_timeout: Duration,
    /// Whether dead letters hold back the later events of their aggregates.
    dead_letters_block: bool,
    unroutable: UnroutableTypes,
    next: Instant,
    /// How many intervals pass before the table is read again.
    skipped: u32,
}

const INTERVAL: Duration = Duration::from_secs(15);
/// Reading may take at most this part of the time: where the table is large or the database slow, it is read less
/// often.
const PART: u32 = 100;
const LONGEST_REST: Duration = Duration::from_secs(10 * 60);

/// Returns how many intervals follow a reading that took this long; at least one.
fn rest_after(took: Duration) -> u32 {
    let rest = took.saturating_mul(PART).clamp(INTERVAL, LONGEST_REST);
    u32::try_from(rest.as_secs() / INTERVAL.as_secs()).unwrap_or(u32::MAX)
}

impl<DB: Backend> Sampler<DB> {
    /// Returns a sampler that begins now.
    pub(super) fn new(
        store: Store<DB>,
        handled: TypeFilter,
        meter: Arc<Meter>,
        statement_timeout: Duration,
        unroutable: UnroutableTypes,
    ) -> Self {
        let (dead_letters_block, next, skipped) = (false, Instant::now(), 0);
        Self {
            store,
            handled,
            meter,
            statement_timeout,
            dead_letters_block,
            unroutable,
            next,
            skipped,
        }
    }

    /// Counts the aggregates that are held back, if dead letters do that.
    pub(super) fn dead_letters_block(mut self, block: bool) -> Self {
        self.dead_letters_block = block;
        self
    }
}

impl<DB: Backend> Service for Sampler<DB> {
    const NAME: &'static str = "sampler";
    const DOING: &'static str = "counting events for metrics";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep_until(self.next.into()) => {}
            }
            self.next = Instant::now() + INTERVAL;
            match self.skipped {
                0 => break,
                skipped => self.skipped = skipped - 1,
            }
        }
        let begun = Instant::now();
        let read = self.read().await;
        self.store.release_connection();
        // A failure is not a slow reading: the database may be back soon. Silence is one.
        if matches!(read, Ok(()) | Err(Error::TimedOut { .. })) {
            self.skipped = rest_after(begun.elapsed()) - 1;
        }
        read
    }
}

impl<DB: Backend> Sampler<DB> {
    async fn read(&mut self) -> Result<(), Error> {
        let (store, limit) = (&self.store, self.statement_timeout);
        let stats = within(limit, "reading statistics", store.stats(&self.handled)).await?;
        self.meter.report(|exporter| exporter.table(&stats));
        let blocked = match stats.dead {
            dead if dead > 0 && self.dead_letters_block => {
                let count = store.count_blocked_by_dead();
                within(limit, "counting blocked aggregates", count).await?
            }
            _ => 0,
        };
        self.meter.report(|exporter| exporter.blocked_aggregates(blocked));
        let types = match stats.unroutable {
            0 => BTreeMap::new(),
            _ => {
                let types = store.unroutable_types(&self.handled);
                within(limit, "looking for unroutable events", types).await?
            }
        };
        self.unroutable.report(store.name(), store.table(), types);
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
