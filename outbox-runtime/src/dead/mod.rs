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

/// The dead letters of an outbox: events that were given up, as in the dead-letter queue of a message broker.
///
/// An event becomes a dead letter when its listener has failed as often as
/// [`max_attempts`](crate::Config::max_attempts) permits, or with a permanent error; so does an event that has ended
/// its process five times, a row that cannot be decoded, and with [`Unroutable::Dead`](crate::Unroutable::Dead) an
/// event without a listener. Each death is logged at error level and counted. The event remains in the table with the
/// status DEAD and its last error, until a person decides:
///
/// - **replay** it when its cause is fixed: it is delivered again, with all its attempts;
/// - **discard** it if it is of no more use: its row is deleted, and the reason logged.
///
/// The purge deletes dead letters only if [`dead_retention`](crate::PurgeConfig::dead_retention) is set.
///
/// [`Outbox::dead_events`](crate::Outbox::dead_events) returns the handle of a running outbox; [`DeadEvents::new`]
/// makes one for a program that runs no outbox, such as a maintenance task. Cloning it is cheap.
///
/// ```
/// use outbox::dead::DeadFilter;
/// # use outbox::listener::{Delivery, ListenerRegistry};
/// # use std::sync::atomic::{AtomicBool, Ordering};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # static FIXED: AtomicBool = AtomicBool::new(false);
/// # let registry = ListenerRegistry::new().register("Paid", |_: Delivery| async {
/// #     let fixed = FIXED.load(Ordering::Relaxed);
/// #     fixed.then_some(()).ok_or_else(|| outbox::ListenerError::permanent("order 7: no address"))
/// # });
/// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
/// # let mut tx = outbox.begin().await?;
/// # tx.write(outbox::EventEnvelope::json("Paid", "{}")?)?;
/// # tx.commit().await?;
/// # assert_eq!(outbox.drain().await.dead(), 1);
/// let dead = outbox.dead_events();
///
/// // What has failed, and why? A thousand dead letters with one cause are one group.
/// for group in dead.groups(&DeadFilter::new()).await? {
///     println!("{} × {}: {}", group.count, group.event_type, group.error);    // 1 × Paid: order #: no address
/// #   assert_eq!((group.count, group.event_type.as_str(), group.error.as_str()), (1, "Paid", "order #: no address"));
/// }
///
/// // The cause is fixed: deliver the payments again, 500 at a time.
/// # FIXED.store(true, Ordering::Relaxed);
/// let replayed = dead.replay_all(&DeadFilter::new().event_type("Paid"), 500).await?;
/// assert_eq!(replayed, 1);
/// # assert_eq!(outbox.drain().await.delivered(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// The future of every method can be dropped. A replay or discard of one event may have happened by then; a bulk replay
/// or discard keeps the batches that were committed.
pub struct DeadEvents<DB: Backend> {
    store: Store<DB>,
    deliverable: OnDeliverable,
    /// The subscription that operations on single events concern; `None` for all.
    subscription: Option<String>,
}

/// Why events can be delivered that could not before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deliverable {
    /// They have become due.
    Due,
    /// They may have waited behind an event that is gone.
    Unblocked,
}

/// What to do then.
pub(crate) type OnDeliverable = Arc<dyn Fn(Deliverable) + Send + Sync>;

impl<DB: Backend> Clone for DeadEvents<DB> {
    fn clone(&self) -> Self {
        let (store, deliverable) = (self.store.clone(), Arc::clone(&self.deliverable));
        Self { store, deliverable, subscription: self.subscription.clone() }
    }
}

impl<DB: Backend> fmt::Debug for DeadEvents<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadEvents").field("table", self.store.table()).finish_non_exhaustive()
    }
}

impl<DB: Backend> DeadEvents<DB> {
    /// Makes a handle for the dead letters of a table, without connecting to the database.
    ///
    /// Events that are replayed through it are found by the pollers of other processes, within their poll interval.
    pub fn new(pool: Pool<DB>, table: Table) -> Self {
        Self::with(Store::new(pool, table), Arc::new(|_| {}))
    }

    /// Makes a handle for a store; `replayed` is called when replayed events are due.
    pub(crate) fn with(store: Store<DB>, deliverable: OnDeliverable) -> Self {
        Self { store, deliverable, subscription: None }
    }

    /// Returns a handle whose [`find`](Self::find), [`replay`](Self::replay) and [`discard`](Self::discard) concern the
    /// delivery to one subscription alone; that to the unnamed listener if the name is empty. For everything else, set
    /// [`DeadFilter::subscription`].
    ///
    /// ```no_run
    /// use outbox::dead::DeadEvents;
    ///
    /// # async fn example(dead: DeadEvents<sqlx::Postgres>, event_id: &str) -> outbox::Result<()> {
    /// dead.of_subscription("billing").replay(event_id).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn of_subscription(&self, name: impl Into<String>) -> Self {
        Self { subscription: Some(name.into()), ..self.clone() }
    }

    /// Returns the oldest dead letters that match a filter, with their payloads, at most `limit`.
    ///
    /// Use [`stream`](Self::stream) for any number of them, and [`groups`](Self::groups) for an overview.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
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

    /// Returns the dead letter with an id, or `None` if there is no such event or it is not dead. If several
    /// subscriptions have given the event up, it is the first that was written.
    /// [`Admin::find`](crate::Admin::find) finds events of any status.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn find(&self, event_id: impl AsRef<str>) -> Result<Option<DeadEvent>, Error> {
        let found =
            self.store.dead_with_id(event_id.as_ref(), self.subscription.as_deref()).await?;
        Ok(found.into_iter().next())
    }

    /// Counts the dead letters that match a filter.
    ///
    /// With a fingerprint in the filter, it reads the errors of all dead letters that match the rest of it.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
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
    /// Errors that differ only in numbers, ids and quoted words have the same cause: see
    /// [`Fingerprint`](crate::store::Fingerprint). It reads the errors of all matching dead letters, and returns at
    /// most 1,000 groups and one for the rest of each event type.
    ///
    /// ```no_run
    /// use outbox::dead::{DeadEvents, DeadFilter};
    ///
    /// # async fn example(dead: DeadEvents<sqlx::Postgres>) -> outbox::Result<()> {
    /// // Replays everything that died of the most frequent cause.
    /// let groups = dead.groups(&DeadFilter::new()).await?;
    /// if let Some(cause) = groups.first().and_then(|group| group.fingerprint) {
    ///     dead.replay_all(&DeadFilter::new().fingerprint(cause), 500).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
        group::collect(Cursor::start(&self.store, filter, cursor::PAGE).await?).await
    }

    /// Replays one dead letter: its status is NEW, without failed attempts and without the last error, and it is due at
    /// once.
    ///
    /// If several subscriptions have given the event up, it is replayed for all of them; use
    /// [`of_subscription`](Self::of_subscription) for one.
    ///
    /// In a running outbox it is delivered at once. The event keeps its id, so a listener that deduplicates by it must
    /// not have recorded the failed attempts as handled.
    ///
    /// # Errors
    /// - [`Error::NoSuchEvent`] if the table has no event with this id.
    /// - [`Error::NotDead`] if the event is pending or delivered, for example because it was replayed meanwhile.
    /// - [`Error::Database`] if the database fails.
    pub async fn replay(&self, event_id: impl AsRef<str>) -> Result<(), Error> {
        let event_id = event_id.as_ref();
        let sequences = self.sequences_of(event_id).await?;
        if self.store.replay_rows(&sequences).await? == 0 {
            // It was replayed or discarded concurrently.
            return Err(self.no_longer_dead(event_id).await?);
        }
        (self.deliverable)(Deliverable::Due);
        Ok(())
    }

    /// Replays all dead letters that match a filter, `batch` at a time, and returns their number.
    ///
    /// It pauses between batches, so that other transactions can write meanwhile, and so that a large replay does not
    /// flood the listeners. Only events that are dead when it starts are replayed, so it ends even if replayed events
    /// fail again. 500 is a good batch size; a smaller one spreads the replay over more time. For a display of the
    /// progress, use [`replaying`](Self::replaying).
    ///
    /// # Errors
    /// - [`Error::Interrupted`] with the number of replayed events if the database fails; they remain replayed, and
    ///   calling it again continues with the rest.
    /// - [`Error::BatchSizeZero`] if `batch` is zero.
    pub async fn replay_all(&self, filter: &DeadFilter, batch: u32) -> Result<u64, Error> {
        self.replaying(filter, batch).await?.run().await
    }

    /// Starts a bulk replay that the caller runs one batch at a time. See [`replay_all`](Self::replay_all) for what it
    /// does, and [`BulkChange`] for an example.
    ///
    /// # Errors
    /// [`Error::BatchSizeZero`] if `batch` is zero, and [`Error::Database`] if the database fails. Nothing is replayed
    /// then.
    pub async fn replaying(
        &self,
        filter: &DeadFilter,
        batch: u32,
    ) -> Result<BulkChange<DB>, Error> {
        let deliverable = Arc::clone(&self.deliverable);
        BulkChange::start(&self.store, filter, batch, Change::Replay, deliverable).await
    }

    /// Deletes one dead letter, for good; like [`replay`](Self::replay), for every subscription that has given it up.
    ///
    /// The reason is required: with the id, the event type and the last error it is logged at info level, and that line
    /// is all that is left of the event. Aggregate, tenant and payload are not logged.
    ///
    /// # Errors
    /// - [`Error::NoSuchEvent`] if the table has no event with this id.
    /// - [`Error::NotDead`] if the event is pending or delivered. [`Admin::discard`](crate::Admin::discard) deletes a
    ///   pending one.
    /// - [`Error::NoReason`] if the reason is blank.
    /// - [`Error::Database`] if the database fails; the event may be deleted.
    pub async fn discard(&self, event_id: impl AsRef<str>, reason: &str) -> Result<(), Error> {
        let (event_id, reason) = (event_id.as_ref(), checked(reason)?);
        let sequences = self.sequences_of(event_id).await?;
        for dead in self.store.dead_with_id(event_id, self.subscription.as_deref()).await? {
            log_discarded(&dead.event_id, &dead.event_type, dead.last_error.as_deref(), &reason);
        }
        if self.store.discard_rows(&sequences).await? == 0 {
            return Err(self.no_longer_dead(event_id).await?);
        }
        (self.deliverable)(Deliverable::Unblocked);
        Ok(())
    }

    /// Deletes all dead letters that match a filter, one batch at a time, and returns their number.
    ///
    /// Only events that are dead when it starts are deleted. Each is logged as in [`discard`](Self::discard). Check
    /// with [`count`](Self::count) or [`query`](Self::query) what the filter selects: [`DeadFilter::new`] without
    /// anything selects every dead letter.
    ///
    /// ```no_run
    /// use outbox::dead::{DeadEvents, DeadFilter};
    ///
    /// # async fn example(dead: DeadEvents<sqlx::Postgres>) -> outbox::Result<()> {
    /// let reminders = DeadFilter::new().event_type("Reminder");
    /// let discarded = dead.discard_all(&reminders, "the campaign is over").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::NoReason`] if the reason is blank.
    /// - [`Error::Interrupted`] with the number of deleted events if the database fails; call it again to delete the
    ///   rest.
    pub async fn discard_all(&self, filter: &DeadFilter, reason: &str) -> Result<u64, Error> {
        self.discarding(filter, reason).await?.run().await
    }

    /// Starts a bulk discard that the caller runs one batch at a time. See [`discard_all`](Self::discard_all).
    ///
    /// # Errors
    /// [`Error::NoReason`] if the reason is blank, and [`Error::Database`] if the database fails. Nothing is deleted
    /// then.
    pub async fn discarding(
        &self,
        filter: &DeadFilter,
        reason: &str,
    ) -> Result<BulkChange<DB>, Error> {
        let change = Change::Discard { reason: checked(reason)? };
        let deliverable = Arc::clone(&self.deliverable);
        BulkChange::start(&self.store, filter, cursor::PAGE, change, deliverable).await
    }

    /// Returns the rows of an event that are dead; at least one.
    async fn sequences_of(&self, event_id: &str) -> Result<Vec<i64>, Error> {
        let rows = self.store.statuses_of(event_id, self.subscription.as_deref()).await?;
        let dead = rows.iter().filter(|(_, status)| *status == Status::Dead);
        let dead: Vec<i64> = dead.map(|(sequence, _)| *sequence).collect();
        if dead.is_empty() { Err(self.not_dead(event_id, &rows)) } else { Ok(dead) }
    }

    async fn no_longer_dead(&self, event_id: &str) -> Result<Error, Error> {
        let rows = self.store.statuses_of(event_id, self.subscription.as_deref()).await?;
        Ok(self.not_dead(event_id, &rows))
    }

    fn not_dead(&self, event_id: &str, rows: &[(i64, Status)]) -> Error {
        match rows.first() {
            Some((_, status)) => Error::NotDead { event_id: event_id.to_owned(), status: *status },
            None => self.no_such(event_id),
        }
    }

    fn no_such(&self, event_id: &str) -> Error {
        Error::NoSuchEvent { event_id: event_id.to_owned(), table: self.store.table().clone() }
    }
}

fn checked(reason: &str) -> Result<String, Error> {
    let reason = reason.trim();
    if reason.is_empty() { Err(Error::NoReason) } else { Ok(reason.to_owned()) }
}
