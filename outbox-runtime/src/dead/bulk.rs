use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cursor::Cursor;
use crate::Error;
use crate::service::within;
use crate::store::{Backend, DeadFilter, DeadKey, Store};
use crate::throttle::Throttle;

/// A change to many dead events, a batch at a time. What is done stays done, so it can be given up at any
/// point, and begun again.
///
/// ```no_run
/// # use outbox_runtime::{DeadEvents, Error, store::{Backend, DeadFilter}};
/// # async fn example<DB: Backend>(dead: DeadEvents<DB>) -> Result<(), Error> {
/// let mut bulk = dead.replaying(&DeadFilter::default(), 500).await?;
/// while bulk.next().await?.is_some() {
///     println!("{} so far", bulk.done());
/// }
/// # Ok(())
/// # }
/// ```
pub struct BulkChange<DB: Backend> {
    cursor: Cursor<DB>,
    change: Change,
    throttle: Throttle,
    done: u64,
}

/// How long a batch may take.
const BATCH_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) enum Change {
    /// Tells somebody that events are due.
    Replay(Arc<dyn Fn() + Send + Sync>),
    Discard {
        reason: String,
    },
}

impl<DB: Backend> fmt::Debug for BulkChange<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkChange").field("done", &self.done).finish_non_exhaustive()
    }
}

impl<DB: Backend> BulkChange<DB> {
    pub(super) async fn begin(
        store: &Store<DB>,
        filter: &DeadFilter,
        batch: u32,
        change: Change,
    ) -> Result<Self, Error> {
        let cursor = Cursor::begin(store, filter, batch).await?;
        Ok(Self { cursor, change, throttle: Throttle::default(), done: 0 })
    }

    /// Changes the next batch, after a pause that leaves the database to others; gives how many events
    /// that were, or `None` when all are done.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the database fails. It can be called again.
    pub async fn next(&mut self) -> Result<Option<u64>, Error> {
        self.throttle.pause().await;
        let begun = Instant::now();
        let changed = within(BATCH_TIMEOUT, "changing dead events", self.batch()).await;
        self.throttle.worked(begun.elapsed());
        changed.map_err(|source| Error::Interrupted { done: self.done, source: Box::new(source) })
    }

    /// How many events have been changed so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Goes on to the end; gives how many events were changed in all.
    pub(super) async fn finish(mut self) -> Result<u64, Error> {
        while self.next().await?.is_some() {}
        Ok(self.done)
    }

    async fn batch(&mut self) -> Result<Option<u64>, Error> {
        let Some(page) = self.cursor.next().await? else { return Ok(None) };
        // Until it is known to be changed, it is the next one: this future may fail, or be dropped.
        let changed = self.cursor.stay_before(&page);
        let events = self.change(&page).await?;
        self.cursor.go_on(changed);
        self.done += events;
        Ok(Some(events))
    }

    async fn change(&self, page: &[DeadKey]) -> Result<u64, Error> {
        let sequences: Vec<i64> = page.iter().map(|key| key.sequence).collect();
        match &self.change {
            Change::Replay(replayed) => {
                let changed = self.cursor.store.replay_rows(&sequences).await?;
                replayed();
                Ok(changed)
            }
            Change::Discard { reason } => {
                for key in page {
                    let error = key.last_error.as_deref();
                    log_discarded(&key.event_id, &key.event_type, error, reason);
                }
                self.cursor.store.discard_rows(&sequences).await
            }
        }
    }
}

/// What is left of an event that is discarded. It comes before the deed: whether that is answered or not, the
/// event may be gone.
pub(super) fn log_discarded(event_id: &str, event_type: &str, error: Option<&str>, reason: &str) {
    tracing::info!(event_id, event_type, error, reason, "a dead event is being discarded");
}
