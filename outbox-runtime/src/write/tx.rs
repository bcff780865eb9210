use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use sqlx::Transaction;
use tokio::runtime::Handle;
use tracing::Instrument;

use super::commit::Flushed;
use super::{Savepoint, Shared};
use crate::Error;
use crate::event::{EventEnvelope, EventId, IntoEnvelope};
use crate::store::{Backend, WriterGuard};
use crate::trace;

/// A transaction that events can be written in.
///
/// [`Outbox::begin`](crate::Outbox::begin) begins one. It derefs to the connection of sqlx, so the statements of the
/// application run in it (`.execute(&mut *tx)`), and [`write`](Self::write) adds events. [`commit`](Self::commit) makes
/// both durable together: an event is stored if and only if the change that it announces is. After the commit, the
/// events go straight to the workers of this process, or are found by the poller of any process.
///
/// Events are kept in a buffer until the commit inserts them, usually with one statement for up to 500 events or 4 MiB.
/// So no row is locked before, and a transaction that the database has already ended fails there instead of leaving an
/// event behind.
///
/// Dropping a `Tx` without a commit rolls it back, with its events; the rollback runs in the background. So does an
/// early return with `?`. Do not end the transaction by SQL of your own (`COMMIT`, or on MySQL a statement such as
/// `CREATE TABLE`, which commits implicitly).
///
/// Pass a `&mut Tx<DB>` to functions that write as part of a larger transaction; inside of them, statements run on
/// `&mut **tx`. Where another layer owns the transaction, see [`Writer::write_in`](super::Writer::write_in).
///
/// # Examples
///
/// ```
/// use outbox::{EventType, Tx};
/// use sqlx::Sqlite;
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent {
///     Placed { #[outbox(aggregate_id)] order_id: i64 },
/// }
///
/// async fn place_order(tx: &mut Tx<Sqlite>, total_cents: i64) -> outbox::Result<i64> {
///     let inserted = sqlx::query("INSERT INTO orders (total_cents) VALUES (?)")
///         .bind(total_cents)
///         .execute(&mut **tx)
///         .await?;
///     let order_id = inserted.last_insert_rowid();
///     tx.write(OrderEvent::Placed { order_id })?;
///     Ok(order_id)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let outbox = outbox::testing::outbox()
/// #     .listeners(outbox::listener::ListenerRegistry::new())
/// #     .schema("CREATE TABLE orders (id INTEGER PRIMARY KEY, total_cents INTEGER)")
/// #     .start()
/// #     .await;
/// let mut tx = outbox.begin().await?;
/// place_order(&mut tx, 1200).await?;
/// tx.commit().await?;                                   // the order and its event, or neither
/// # assert_eq!(outbox.published().await.len(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # In a listener
///
/// A listener that works in the database of the outbox asks for a `&mut Tx<..>`. Its statements, the events that it
/// writes and the completion of its own event are committed together, by the outbox, so they take effect exactly once.
/// Here one event becomes two, each with a listener and retries of its own (fan-out):
///
/// ```standalone_crate
/// use outbox::{EventType, ListenerResult, Tx, listener};
/// use sqlx::Sqlite;
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent {
///     Paid { order_id: i64 },
///     ReceiptDue { order_id: i64 },
///     ShipmentDue { order_id: i64 },
/// }
///
/// #[listener(event = OrderEvent::Paid { order_id })]
/// async fn split(order_id: i64, tx: &mut Tx<Sqlite>) -> ListenerResult {
///     sqlx::query("UPDATE orders SET paid = TRUE WHERE id = ?")
///         .bind(order_id)
///         .execute(&mut **tx)
///         .await?;
///     tx.write_all([OrderEvent::ReceiptDue { order_id }, OrderEvent::ShipmentDue { order_id }])?;
///     Ok(())                                            // the outbox commits; an error rolls back
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// #     let outbox = outbox::testing::outbox()
/// #         .schema("CREATE TABLE orders (id INTEGER PRIMARY KEY, paid BOOLEAN)")
/// #         .start()
/// #         .await;
/// #     outbox.transaction(async |tx| tx.write(OrderEvent::Paid { order_id: 7 }).map(drop)).await?;
/// #     assert_eq!(outbox.drain().await.delivered(), 1);
/// #     assert_eq!(outbox.published().await.len(), 3);
/// #     Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tx<DB: Backend> {
    // `None` only after it was ended.
    pub(super) inner: Option<Transaction<'static, DB>>,
    pub(super) shared: Arc<Shared<DB>>,
    pub(super) buffer: Vec<EventEnvelope>,
    pub(super) flushed: Vec<Flushed>,
    /// When the first of them was inserted.
    pub(super) inserted_at: Option<Instant>,
    // Released after `inner`, so that the next writer finds the lock free.
    pub(super) writer_guard: Option<WriterGuard>,
    pub(super) runtime: Handle,
    // The commit has begun: if it does not come to its end, its outcome is unknown.
    pub(super) committing: bool,
}

/// An event that is in the database, though not committed: what [`Tx::flush`] returns for each event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The event's unique id, generated or set by the caller.
    pub event_id: EventId,
    /// The primary key of its row, or of the row that had its id before.
    pub sequence: i64,
    /// Whether the event was new, or a duplicate of an event with its id.
    pub outcome: WriteOutcome,
}

/// Whether a written event was new, as [`Tx::flush`] finds out.
///
/// Only an event whose id is set by the caller, or an envelope that is written twice, can be a duplicate: generated ids
/// are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteOutcome {
    /// The event has a row of its own and will be delivered after the commit.
    Inserted,
    /// An event with its id exists already; nothing was added, and the existing event is not changed.
    Duplicate,
}

impl<DB: Backend> Tx<DB> {
    /// Writes an event: validates it and keeps it until [`commit`](Self::commit) inserts it. Returns its id, or `None`
    /// if a [hook](super::WriterHook) suppressed it.
    ///
    /// It takes a typed event, an [`event()`](crate::event::event) builder or an envelope ([`IntoEnvelope`]). No SQL
    /// runs, so it is not async and cannot fail because of the database. Events are inserted in the order in which they
    /// are written, but delivered concurrently.
    ///
    /// ```
    /// # use outbox::{EventEnvelope, Tx};
    /// # fn example<DB: outbox::tx::Backend>(tx: &mut Tx<DB>) -> outbox::Result<()> {
    /// let id = tx.write(EventEnvelope::json("CacheFlushed", "{}")?)?;
    /// if let Some(id) = id {
    ///     println!("event {id} is delivered after the commit");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Event`] if the event is invalid, with an [`EventError`](crate::event::EventError) that says why, and
    /// [`Error::Hook`] if a hook refuses it. The transaction is untouched: the caller may go on and commit it without
    /// the event.
    pub fn write(&mut self, event: impl IntoEnvelope) -> Result<Option<EventId>, Error> {
        Ok(self.write_all([event])?.first().copied())
    }

    /// Writes several events; all of them or none. Returns the ids of those that no hook suppressed, in the same order.
    ///
    /// Hooks are called once, with all events. For events of different types, build the envelopes first:
    /// `[outbox::event(a).build()?, outbox::event(b).build()?]`.
    ///
    /// # Errors
    /// [`Error::Event`] or [`Error::Hook`], as [`write`](Self::write); none of the events is kept then.
    pub fn write_all<E: IntoEnvelope>(
        &mut self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<EventId>, Error> {
        write_to(&mut self.buffer, &self.shared, events)
    }

    /// Inserts the buffered events now instead of at the commit, and returns what became of each.
    ///
    /// Use it if the transaction depends on whether an event is new: a command that carries its own id is skipped the
    /// second time.
    ///
    /// ```
    /// use outbox::EventEnvelope;
    /// use outbox::tx::WriteOutcome;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let outbox = outbox::testing::outbox().listeners(outbox::listener::ListenerRegistry::new()).start().await;
    /// let request = || EventEnvelope::builder("Ordered").payload_json("{}").event_id("request-7");
    /// for expected in [WriteOutcome::Inserted, WriteOutcome::Duplicate] {
    ///     let mut tx = outbox.begin().await?;
    ///     tx.write(request())?;
    ///     let written = tx.flush().await?;
    ///     assert_eq!(written[0].outcome, expected);
    ///     if written[0].outcome == WriteOutcome::Inserted {
    ///         // The statements of the application.
    ///     }
    ///     tx.commit().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Call it late in the transaction: the database keeps the locks of the inserted rows until the commit. Another
    /// transaction that writes the same id waits for as long, and on MySQL and MariaDB it may hold up writers of
    /// neighbouring ids as well. On MySQL (not MariaDB), an event whose id a transaction committed after this one had
    /// taken its snapshot holds up all writers. Events that are left to [`commit`](Self::commit) are locked for its
    /// duration only.
    ///
    /// # Errors
    /// [`Error::TransactionLost`] if the database has ended the transaction already, because an earlier statement
    /// failed, and [`Error::Database`] if the insert fails. Roll back in both cases.
    ///
    /// # Cancel safety
    /// If the future is dropped, the events remain buffered, and the commit or the next flush inserts those that are
    /// missing. Those that were inserted already are reported as duplicates then, and are delivered by a poller, at the
    /// latest after a lease.
    pub async fn flush(&mut self) -> Result<Vec<Written>, Error> {
        if self.buffer.is_empty() {
            return Ok(Vec::new());
        }
        self.check_open().await?;
        let before = self.flushed.len();
        self.insert_buffer().await?;
        Ok(Flushed::by_event(&self.flushed[before..]).filter_map(Flushed::written).collect())
    }

    /// Begins a part of the transaction that can be rolled back on its own, with the events written in it.
    ///
    /// # Errors
    /// [`Error::Database`] if the database cannot set a savepoint, for example because an earlier statement has failed
    /// on PostgreSQL, and [`Error::TransactionLost`] if the transaction has ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the savepoint is set. Roll back the transaction.
    pub async fn savepoint(&mut self) -> Result<Savepoint<'_, DB>, Error> {
        let Some(inner) = &mut self.inner else { return Err(Error::TransactionLost) };
        Savepoint::<DB>::begin(&mut **inner, &mut self.buffer, &self.shared).await
    }

    /// Returns the transaction of sqlx, for functions that expect a `&mut sqlx::Transaction`.
    ///
    /// Statements do not need it: `&mut *tx` is the connection. Events are not visible to SQL before the commit or a
    /// [`flush`](Self::flush).
    ///
    /// # Panics
    /// Never: a transaction that was ended cannot be used.
    pub fn sqlx(&mut self) -> &mut Transaction<'static, DB> {
        self.inner.as_mut().unwrap_or_else(|| unreachable!("a transaction is used after its end"))
    }

    /// Inserts the buffered events and commits, so that the statements and the events take effect together.
    ///
    /// Then the hooks are called, and the events are passed to the workers of this process if the hot queue has places;
    /// otherwise a poller finds them. A full queue never fails a commit.
    ///
    /// # Errors
    /// - [`Error::TransactionLost`] if the database had ended the transaction before, because a statement had failed
    ///   and its error was ignored. Nothing is committed, and no event is written.
    /// - [`Error::CommittedEarly`] if on MySQL or MariaDB a statement such as `CREATE TABLE` had committed it: what
    ///   came before that statement is committed, flushed events among it, and later events are not written.
    /// - [`Error::Database`] if the insert or the commit fails. If the connection broke during the commit, it is
    ///   unknown whether it took place; if it did, the events will be delivered. To repeat the work safely, write
    ///   events under ids of your own ([`EnvelopeBuilder::event_id`](crate::event::EnvelopeBuilder::event_id)) and
    ///   flush them.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the commit took place. If it did, the events will be delivered.
    /// Put a time limit around the work before the commit rather than around the commit.
    pub async fn commit(self) -> Result<(), Error> {
        let events = self.buffer.len() + Flushed::by_event(&self.flushed).count();
        let span = trace::write(&self.shared.store, events);
        self.insert_and_commit().instrument(span).await
    }

    /// Rolls back the transaction, and with it the events.
    ///
    /// Dropping the `Tx` does the same in the background; this method waits until the connection can be used again.
    ///
    /// # Errors
    /// None today: if the connection is gone, the server rolls the transaction back.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction is rolled back all the same.
    pub async fn rollback(mut self) -> Result<(), Error> {
        self.abandon().await;
        Ok(())
    }

    /// Returns the events that it has written so far. An event whose id existed already is not among them.
    #[cfg(feature = "testing")]
    pub(crate) fn written(&self) -> Vec<EventEnvelope> {
        Flushed::new_events(&self.flushed).chain(&self.buffer).cloned().collect()
    }
}

/// Validates events, calls the hooks, and keeps the events that are left in a buffer.
pub(super) fn write_to<DB: Backend, E: IntoEnvelope>(
    buffer: &mut Vec<EventEnvelope>,
    shared: &Shared<DB>,
    events: impl IntoIterator<Item = E>,
) -> Result<Vec<EventId>, Error> {
    let validate = |event: E| event.into_envelope_at(shared.store.wall_clock());
    let events = events.into_iter().map(validate).collect::<Result<Vec<_>, _>>()?;
    let events = shared.hooks.before_write(events)?;
    // Events that a hook has added belong to the same trace.
    let events: Vec<EventEnvelope> = events.into_iter().map(trace::carry).collect();
    let ids = events.iter().map(EventEnvelope::event_id).collect();
    shared.hooks.after_write(&events);
    buffer.extend(events);
    Ok(ids)
}

impl<DB: Backend> Deref for Tx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("a transaction is used after its end"),
        }
    }
}

impl<DB: Backend> DerefMut for Tx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.sqlx()
    }
}
