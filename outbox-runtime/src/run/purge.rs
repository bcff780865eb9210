use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::PurgeConfig;
use super::service::{Service, within};
use crate::Error;
use crate::store::{Backend, Store};

/// Deletes what is done, in small batches.
pub(super) struct Purger<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) config: PurgeConfig,
    pub(super) patience: Duration,
    pub(super) next: Instant,
}

const BATCH: u32 = 500;
/// Others want to write as well.
const PAUSE: Duration = Duration::from_millis(10);

/// Longer than any process lives, and short enough to be added to a clock.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

impl<DB: Backend> Service for Purger<DB> {
    const NAME: &'static str = "purge";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
        }
        let (mut done, mut dead) = (0, 0);
        while !stop.is_cancelled() {
            let purge = self.store.purge_done(self.config.retention, BATCH);
            let deleted_done = within(self.patience, "purging events", purge).await?;
            let deleted_dead = match self.config.dead_retention {
                Some(age) => {
                    let purge = self.store.purge_dead(age, BATCH);
                    within(self.patience, "purging events", purge).await?
                }
                None => 0,
            };
            done += deleted_done;
            dead += deleted_dead;
            if deleted_done.max(deleted_dead) < u64::from(BATCH) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if done + dead > 0 {
            tracing::info!(done, dead, "purged");
        }
        self.next = Instant::now() + self.config.interval.min(LONGEST_INTERVAL);
        Ok(())
    }
}
