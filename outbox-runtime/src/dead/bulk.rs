use std::fmt;
use std::time::{Duration, Instant};

use super::cursor::Cursor;
use super::{Deliverable, OnDeliverable};
use crate::Error;
use crate::service::within;
use crate::store::{Backend, DeadFilter, DeadKey, Store};
use crate::throttle::Throttle;

/// A bulk replay or discard of dead letters, one batch at a time.
///
/// [`DeadEvents::replaying`](super::DeadEvents::replaying) and
/// [`DeadEvents::discarding`](super::DeadEvents::discarding) start one, for programs that show progress or want to stop
/// in between. Every batch is committed by itself, so the operation can be abandoned at any point and started again. It
/// takes the events that are dead when it starts, oldest first; events that die meanwhile are left.
///
/// ```no_run
/// use outbox::dead::{DeadEvents, DeadFilter};
///
/// # async fn example(dead: DeadEvents<sqlx::Postgres>) -> outbox::Result<()> {
/// let filter = DeadFilter::new().event_type("Paid");
/// let total = dead.count(&filter).await?;
/// let mut bulk = dead.replaying(&filter, 500).await?;
/// while bulk.next().await?.is_some() {
///     println!("{} of {total}", bulk.done());
/// }
/// # Ok(())
/// # }
/// ```
pub struct BulkChange<DB: Backend> {
    cursor: Cursor<DB>,
    change: Change,
    /// Called after each batch.
    deliverable: OnDeliverable,
    throttle: Throttle,
    done: u64,
}

/// The time-out of one batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) enum Change {
    Replay,
    Discard { reason: String },
}

impl<DB: Backend> fmt::Debug for BulkChange<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkChange").field("done", &self.done).finish_non_exhaustive()
    }
}

impl<DB: Backend> BulkChange<DB> {
    pub(super) async fn start(
        store: &Store<DB>,
        filter: &DeadFilter,
        batch: u32,
        change: Change,
        deliverable: OnDeliverable,
    ) -> Result<Self, Error> {
        let cursor = Cursor::start(store, filter, batch).await?;
        Ok(Self { cursor, change, deliverable, throttle: Throttle::default(), done: 0 })
    }

    /// Changes the next batch and returns the number of changed events, or `None` when no events are left.
    ///
    /// Before every batch but the first it pauses for nine times as long as the last one took, at least 10 milliseconds
    /// and at most a second, so that other statements get their share of the database. The number may be zero: another
    /// person may have changed the events of the batch meanwhile.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the database fails, or does not answer within 30 seconds. Call it again to continue
    /// with the same batch.
    ///
    /// # Cancel safety
    /// If the future is dropped, the batch may have been changed or not, and may be missing in [`done`](Self::done).
    /// The next call starts with the same batch and skips what was changed.
    pub async fn next(&mut self) -> Result<Option<u64>, Error> {
        self.throttle.pause().await;
        let started = Instant::now();
        let changed = within(BATCH_TIMEOUT, "changing dead events", self.batch()).await;
        self.throttle.worked(started.elapsed());
        changed.map_err(|source| Error::Interrupted { done: self.done, source: Box::new(source) })
    }

    /// Returns the number of events changed so far, by all batches.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Runs to the end and returns the number of changed events.
    pub(super) async fn run(mut self) -> Result<u64, Error> {
        while self.next().await?.is_some() {}
        Ok(self.done)
    }

    async fn batch(&mut self) -> Result<Option<u64>, Error> {
        let Some(page) = self.cursor.next().await? else { return Ok(None) };
        // Until the page is known to be changed, it remains the next one: this future may fail or be dropped.
        let after = self.cursor.rewind_before(&page);
        let events = self.change(&page).await?;
        self.cursor.seek(after);
        self.done += events;
        Ok(Some(events))
    }

    async fn change(&self, page: &[DeadKey]) -> Result<u64, Error> {
        let sequences: Vec<i64> = page.iter().map(|key| key.sequence).collect();
        match &self.change {
            Change::Replay => {
                let changed = self.cursor.store.replay_rows(&sequences).await?;
                (self.deliverable)(Deliverable::Due);
                Ok(changed)
            }
            Change::Discard { reason } => {
                for key in page {
                    let error = key.last_error.as_deref();
                    log_discarded(&key.event_id, &key.event_type, error, reason);
                }
                let changed = self.cursor.store.discard_rows(&sequences).await?;
                (self.deliverable)(Deliverable::Unblocked);
                Ok(changed)
            }
        }
    }
}

/// Logs a dead letter before it is discarded. The log line is all that is left of it, and it comes first because
/// the event may be gone even if the database does not answer the delete.
pub(super) fn log_discarded(event_id: &str, event_type: &str, error: Option<&str>, reason: &str) {
    tracing::info!(event_id, event_type, error, reason, "a dead event is being discarded");
}
