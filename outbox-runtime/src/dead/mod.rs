//! Dead letters: events that were given up, which can be read, replayed and discarded.
//!
//! # Layout
//! [`DeadEvents`] is the handle. `cursor` reads any number of dead letters one page at a time; [`BulkChange`]
//! replays or discards them, [`DeadStream`] returns them, [`DeadGroup`] counts them by cause.

mod bulk;
mod cursor;
mod group;
mod stream;

pub use bulk::BulkChange;
pub use group::DeadGroup;
pub use stream::DeadStream;

use std::fmt;
use std::sync::Arc;

use sqlx::Pool;

use crate::Error;
use crate::event::Status;
use crate::store::{Backend, DeadEvent, DeadFilter, Store, Table};
use bulk::{Change, log_discarded};
use cursor::Cursor;

/// The dead letters of an outbox: events that failed too often or with a permanent error.
///
/// They remain in the table until they are replayed or discarded, or until the purge deletes them if
/// `purge.dead_retention` is set. [`Outbox::dead_events`](crate::Outbox::dead_events) returns the handle of a running
/// outbox; [`DeadEvents::new`] makes one for a program that runs no outbox, such as a maintenance task. Cloning it
/// is cheap.
///
/// ```no_run
/// # use outbox::dead::{DeadEvents, DeadFilter};
/// # use outbox::tx::Backend;
/// # use outbox::Error;
/// # async fn example<DB: Backend>(dead: DeadEvents<DB>) -> Result<(), Error> {
/// for group in dead.groups(&DeadFilter::default()).await? {
///     println!("{} × {}: {}", group.count, group.event_type, group.error);
/// }
/// let replayed = dead.replay_all(&DeadFilter::new().event_type("Paid"), 500).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// The future of every method can be dropped. A replay or discard of one event may have happened by then; a bulk
/// replay or discard keeps the batches that were committed.
pub struct DeadEvents<DB: Backend> {
    store: Store<DB>,
    replayed: Arc<dyn Fn() + Send + Sync>,
}

impl<DB: Backend> Clone for DeadEvents<DB> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), replayed: Arc::clone(&self.replayed) }
    }
}

impl<DB: Backend> fmt::Debug for DeadEvents<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadEvents").field("table", self.store.table()).finish_non_exhaustive()
    }
}

impl<DB: Backend> DeadEvents<DB> {
    /// Makes a handle for the dead letters of a table.
    pub fn new(pool: Pool<DB>, table: Table) -> Self {
        Self::with(Store::new(pool, table), Arc::new(|| {}))
    }

    /// Makes a handle for a store; `replayed` is called when replayed events are due.
    pub(crate) fn with(store: Store<DB>, replayed: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { store, replayed }
    }

    /// Returns the oldest dead letters that match a filter, at most `limit`.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn query(&self, filter: &DeadFilter, limit: u32) -> Result<Vec<DeadEvent>, Error> {
        let (mut found, mut after) = (Vec::new(), 0);
        while found.len() < limit as usize {
            // A fingerprint is matched here and not in SQL, so only a few rows of a page may match.
            let wanted = if filter.fingerprint.is_some() { stream::PAGE } else { limit };
            let page = self.store.dead(&filter.events, after, wanted.min(stream::PAGE)).await?;
            let Some(last) = page.last() else { break };
            after = last.sequence;
            found.extend(page.into_iter().filter(|dead| filter.matches_cause(dead)));
        }
        found.truncate(limit as usize);
        Ok(found)
    }

    /// Returns a stream of all dead letters that match a filter, oldest first. It reads one page at a time, so any
    /// number of them needs little memory.
    pub fn stream(&self, filter: DeadFilter) -> DeadStream<DB> {
        DeadStream::new(self.store.clone(), filter)
    }

    /// Returns the dead letter with an id, or `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn find(&self, event_id: impl AsRef<str>) -> Result<Option<DeadEvent>, Error> {
        self.store.dead_one(event_id.as_ref()).await
    }

    /// Counts the dead letters that match a filter.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn count(&self, filter: &DeadFilter) -> Result<u64, Error> {
        if filter.fingerprint.is_none() {
            return self.store.count_dead(&filter.events).await;
        }
        let (mut cursor, mut count) = (Cursor::start(&self.store, filter, cursor::PAGE).await?, 0);
        while let Some(page) = cursor.next().await? {
            count += page.len() as u64;
        }
        Ok(count)
    }

    /// Counts the dead letters that match a filter by event type and cause, the most frequent first.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
        group::collect(Cursor::start(&self.store, filter, cursor::PAGE).await?).await
    }

    /// Replays one dead letter: it becomes NEW, without failed attempts, and is due at once.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchEvent`], [`Error::NotDead`], or an error if the database fails.
    pub async fn replay(&self, event_id: impl AsRef<str>) -> Result<(), Error> {
        let event_id = event_id.as_ref();
        let sequence = self.sequence_of(event_id).await?;
        if self.store.replay_rows(&[sequence]).await? == 0 {
            // It was replayed or discarded concurrently.
            return Err(self.no_longer_dead(event_id).await?);
        }
        (self.replayed)();
        Ok(())
    }

    /// Replays all dead letters that match a filter, `batch` at a time, and returns their number.
    ///
    /// It pauses between batches, so that other transactions can write meanwhile. Only events that are dead when it
    /// starts are replayed, so it ends even if replayed events fail again.
    ///
    /// # Errors
    /// Returns [`Error::Interrupted`] with the number of replayed events if the database fails; they remain
    /// replayed, and calling it again continues with the rest. Returns [`Error::BatchSizeZero`] if `batch` is zero.
    pub async fn replay_all(&self, filter: &DeadFilter, batch: u32) -> Result<u64, Error> {
        self.replaying(filter, batch).await?.run().await
    }

    /// Starts a bulk replay that runs one batch at a time. See [`replay_all`](Self::replay_all).
    ///
    /// # Errors
    /// Returns [`Error::BatchSizeZero`] if `batch` is zero, or an error if the database fails.
    pub async fn replaying(
        &self,
        filter: &DeadFilter,
        batch: u32,
    ) -> Result<BulkChange<DB>, Error> {
        let change = Change::Replay(Arc::clone(&self.replayed));
        BulkChange::start(&self.store, filter, batch, change).await
    }

    /// Deletes one dead letter.
    ///
    /// Its id, event type, last error and the reason are logged at info level; aggregate, tenant and payload are
    /// not.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchEvent`], [`Error::NotDead`], [`Error::NoReason`] if the reason is blank, or an error
    /// if the database fails.
    pub async fn discard(&self, event_id: impl AsRef<str>, reason: &str) -> Result<(), Error> {
        let (event_id, reason) = (event_id.as_ref(), checked(reason)?);
        let sequence = self.sequence_of(event_id).await?;
        if let Some(dead) = self.store.dead_one(event_id).await? {
            log_discarded(&dead.event_id, &dead.event_type, dead.last_error.as_deref(), &reason);
        }
        if self.store.discard_rows(&[sequence]).await? == 0 {
            return Err(self.no_longer_dead(event_id).await?);
        }
        Ok(())
    }

    /// Deletes all dead letters that match a filter, one batch at a time, and returns their number.
    ///
    /// Only events that are dead when it starts are deleted. Each is logged as in [`discard`](Self::discard).
    ///
    /// # Errors
    /// Returns [`Error::NoReason`] if the reason is blank, and [`Error::Interrupted`] with the number of deleted
    /// events if the database fails.
    pub async fn discard_all(&self, filter: &DeadFilter, reason: &str) -> Result<u64, Error> {
        self.discarding(filter, reason).await?.run().await
    }

    /// Starts a bulk discard that runs one batch at a time. See [`discard_all`](Self::discard_all).
    ///
    /// # Errors
    /// Returns [`Error::NoReason`] if the reason is blank, or an error if the database fails.
    pub async fn discarding(
        &self,
        filter: &DeadFilter,
        reason: &str,
    ) -> Result<BulkChange<DB>, Error> {
        let change = Change::Discard { reason: checked(reason)? };
        BulkChange::start(&self.store, filter, cursor::PAGE, change).await
    }

    async fn sequence_of(&self, event_id: &str) -> Result<i64, Error> {
        match self.store.status_of(event_id).await? {
            Some((sequence, Status::Dead)) => Ok(sequence),
            Some((_, status)) => Err(Error::NotDead { event_id: event_id.to_owned(), status }),
            None => Err(self.no_such(event_id)),
        }
    }

    async fn no_longer_dead(&self, event_id: &str) -> Result<Error, Error> {
        Ok(match self.store.status_of(event_id).await? {
            Some((_, status)) => Error::NotDead { event_id: event_id.to_owned(), status },
            None => self.no_such(event_id),
        })
    }

    fn no_such(&self, event_id: &str) -> Error {
        Error::NoSuchEvent { event_id: event_id.to_owned(), table: self.store.table().clone() }
    }
}

fn checked(reason: &str) -> Result<String, Error> {
    let reason = reason.trim();
    if reason.is_empty() { Err(Error::NoReason) } else { Ok(reason.to_owned()) }
}
