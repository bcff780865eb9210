//! What has been given up: looked at, replayed, discarded.
//!
//! # Layout
//! [`DeadEvents`] is the handle. `cursor` goes over any number of dead events a page at a time; [`BulkChange`]
//! changes what it finds, [`DeadStream`] shows it, [`DeadGroup`] counts it by cause.

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

/// The dead letters of an outbox: events that failed too often, or for good.
///
/// They stay until somebody replays or discards them. [`Outbox::dead_events`](crate::Outbox::dead_events)
/// gives the ones of a running outbox; a program that runs none makes its own.
///
/// ```no_run
/// # use outbox_runtime::{DeadEvents, Error, store::{Backend, DeadFilter}};
/// # async fn example<DB: Backend>(dead: DeadEvents<DB>) -> Result<(), Error> {
/// for group in dead.groups(&DeadFilter::default()).await? {
///     println!("{} × {}: {}", group.count, group.event_type, group.error);
/// }
/// let receipts = DeadFilter { event_type: Some("Paid".to_owned()), ..DeadFilter::default() };
/// let replayed = dead.replay_all(&receipts, 500).await?;
/// # Ok(())
/// # }
/// ```
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
    /// The dead events of a table.
    pub fn new(pool: Pool<DB>, table: Table) -> Self {
        Self::of(Store::new(pool, table), Arc::new(|| {}))
    }

    /// Those of a store; `replayed` is called when some of them are due again.
    pub(crate) fn of(store: Store<DB>, replayed: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { store, replayed }
    }

    /// The oldest ones, at most so many.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn query(&self, filter: &DeadFilter, limit: u32) -> Result<Vec<DeadEvent>, Error> {
        let (mut found, mut after) = (Vec::new(), 0);
        while found.len() < limit as usize {
            // Of a cause that is looked for here, few of a page may be.
            let asked = if filter.fingerprint.is_some() { stream::PAGE } else { limit };
            let page = self.store.dead(filter, after, asked.min(stream::PAGE)).await?;
            let Some(last) = page.last() else { break };
            after = last.sequence;
            found.extend(page.into_iter().filter(|dead| filter.names_error_of(dead)));
        }
        found.truncate(limit as usize);
        Ok(found)
    }

    /// All of them, oldest first, however many there are: read a page at a time.
    pub fn stream(&self, filter: DeadFilter) -> DeadStream<DB> {
        DeadStream::new(self.store.clone(), filter)
    }

    /// One of them.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn find(&self, event_id: impl AsRef<str>) -> Result<Option<DeadEvent>, Error> {
        self.store.dead_one(event_id.as_ref()).await
    }

    /// How many there are.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn count(&self, filter: &DeadFilter) -> Result<u64, Error> {
        if filter.fingerprint.is_none() {
            return self.store.count_dead(filter).await;
        }
        let (mut cursor, mut count) = (Cursor::begin(&self.store, filter, cursor::PAGE).await?, 0);
        while let Some(page) = cursor.next().await? {
            count += page.len() as u64;
        }
        Ok(count)
    }

    /// How many there are of each type and cause, the most frequent first.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
        group::gather(Cursor::begin(&self.store, filter, cursor::PAGE).await?).await
    }

    /// Makes one of them new again: no attempts, due at once.
    ///
    /// # Errors
    /// [`Error::NoSuchEvent`] or [`Error::NotDead`], or if the database fails.
    pub async fn replay(&self, event_id: impl AsRef<str>) -> Result<(), Error> {
        let event_id = event_id.as_ref();
        let sequence = self.sequence_of(event_id).await?;
        if self.store.replay_rows(&[sequence]).await? == 0 {
            // Somebody else was faster.
            return Err(self.no_longer_dead(event_id).await?);
        }
        (self.replayed)();
        Ok(())
    }

    /// Makes all that are dead now new again, a batch at a time with a pause after each, so that others
    /// can write meanwhile; gives how many. Events that die meanwhile are left alone, so it ends.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the database fails, with how far it got. What was replayed stays so:
    /// calling it again goes on from there. [`Error::BatchSizeZero`] if `batch` is zero.
    pub async fn replay_all(&self, filter: &DeadFilter, batch: u32) -> Result<u64, Error> {
        self.replaying(filter, batch).await?.finish().await
    }

    /// [`replay_all`](Self::replay_all) step by step, for those who want to see it move.
    ///
    /// # Errors
    /// If the database fails, or `batch` is zero ([`Error::BatchSizeZero`]).
    pub async fn replaying(
        &self,
        filter: &DeadFilter,
        batch: u32,
    ) -> Result<BulkChange<DB>, Error> {
        let change = Change::Replay(Arc::clone(&self.replayed));
        BulkChange::begin(&self.store, filter, batch, change).await
    }

    /// Deletes one of them. Its id, its type, its last error and the reason go to the log, and nothing
    /// else: neither aggregate nor tenant nor payload.
    ///
    /// # Errors
    /// [`Error::NoSuchEvent`], [`Error::NotDead`] or [`Error::NoReason`], or if the database fails.
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

    /// Deletes all that are dead now, a batch at a time; gives how many. Events that die meanwhile are left
    /// alone.
    ///
    /// # Errors
    /// [`Error::NoReason`]; [`Error::Interrupted`] if the database fails, with how far it got.
    pub async fn discard_all(&self, filter: &DeadFilter, reason: &str) -> Result<u64, Error> {
        self.discarding(filter, reason).await?.finish().await
    }

    /// [`discard_all`](Self::discard_all) step by step.
    ///
    /// # Errors
    /// [`Error::NoReason`], or if the database fails.
    pub async fn discarding(
        &self,
        filter: &DeadFilter,
        reason: &str,
    ) -> Result<BulkChange<DB>, Error> {
        let change = Change::Discard { reason: checked(reason)? };
        BulkChange::begin(&self.store, filter, cursor::PAGE, change).await
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
