//! Writing events in the business transaction.
//!
//! # Layout
//! [`Writer`] begins transactions. [`Tx`] is one: `tx` has what a user does with it, `commit` how it begins and
//! ends. [`Savepoint`] is a part of one that can be rolled back. `foreign` is for transactions of the
//! application's own. `refresh` reads who receives events. `hot_path` passes committed events to the workers of this process. [`WriterHook`] is for
//! audit, metrics and tests.

mod commit;
mod foreign;
mod hook;
pub(crate) mod hot_path;
mod refresh;
mod savepoint;
mod tx;

pub use foreign::Receipt;
pub use hook::WriterHook;
pub(crate) use hot_path::{Admission, HotPath, HotRelay};
pub use savepoint::Savepoint;
pub use tx::{Tx, WriteOutcome, Written};

use std::sync::Arc;

use sqlx::Pool;

use crate::Error;
use crate::event::{EventEnvelope, Recipient};
use crate::listener::{Audience, Expansion};
use crate::metrics::Meter;
use crate::store::{Backend, Purpose, Store, StoreOf, Table};
use hook::Hooks;
use refresh::Refresh;

/// Writes events in transactions of one database, without a running outbox.
///
/// A running [`Outbox`](crate::Outbox) has the same methods. Use a `Writer` in programs that only publish, such as a
/// command-line tool or a scheduled job: it starts no loops, opens no connections of its own and has nothing to shut
/// down. Another process delivers the events, when its poller finds them. Which subscriptions receive them is read
/// from the database, at most every five seconds. Hooks, metrics and notifications belong to an
/// outbox; for these, start one in the mode [`WriterOnly`](crate::Mode::WriterOnly).
///
/// Cloning it copies a pointer. The table must exist: an outbox creates it at its start,
/// [`migrate`](crate::store::migrate) ahead of time.
///
/// # Examples
///
/// ```no_run
/// use outbox::EventEnvelope;
/// use outbox::admin::{DEFAULT_TABLE, Table};
/// use outbox::tx::Writer;
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// let writer = Writer::new(pool, Table::new(DEFAULT_TABLE)?);
///
/// let mut tx = writer.begin().await?;
/// sqlx::query("UPDATE prices SET cents = cents * 2").execute(&mut *tx).await?;
/// tx.write(EventEnvelope::json("PricesChanged", "{}")?)?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Writer<DB: Backend> {
    shared: Arc<Shared<DB>>,
}

/// What every transaction of a writer needs.
#[derive(Debug)]
struct Shared<DB: Backend> {
    store: Store<DB>,
    hooks: Hooks,
    hot_path: HotPath<DB>,
    meter: Option<Arc<Meter>>,
    audience: Audience,
    /// Reads the registrations, in a process without a loop that does.
    refresh: Option<Refresh>,
}

impl<DB: Backend> Shared<DB> {
    /// Returns who receives an event.
    fn recipients_of(&self, event: &EventEnvelope) -> Expansion {
        self.audience.recipients.of(event.aggregate_type(), event.event_type())
    }

    /// Returns whether a row is done when it is inserted, because the event needs no listener and has none.
    fn is_settled(&self, event: &EventEnvelope, recipient: &Recipient) -> bool {
        *recipient == Recipient::Unnamed && self.audience.no_listener.covers(event)
    }
}

impl<DB: Backend> StoreOf<DB> for Writer<DB> {
    fn store(&self) -> &Store<DB> {
        &self.shared.store
    }
}

/// Implemented by no type; it exists for its error message.
#[diagnostic::on_unimplemented(
    message = "an event can only be written inside of a transaction",
    label = "there is no transaction here",
    note = "begin one: `let mut tx = outbox.begin().await?; tx.write(event)?; tx.commit().await?`, or \
            write into a transaction of your own with `write_in(&mut connection, event)`"
)]
#[doc(hidden)]
pub trait InTransaction {}

impl<DB: Backend> Clone for Writer<DB> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<DB: Backend> Writer<DB> {
    /// Makes a writer for a table, without a relay: every event is left to the poller of another process,
    /// except those that need no listener.
    ///
    /// It does not access the database, so a missing table is reported by the first transaction.
    pub fn new(pool: Pool<DB>, table: Table) -> Self {
        let (store, hooks) = (Store::new(pool, table), Hooks::new(Vec::new()));
        let (hot_path, meter, audience) = (HotPath::new(None, None), None, Audience::of_program());
        let refresh = Some(Refresh::default());
        Self { shared: Arc::new(Shared { store, hooks, hot_path, meter, audience, refresh }) }
    }

    pub(crate) fn with(
        store: Store<DB>,
        hooks: Vec<Arc<dyn WriterHook>>,
        hot_path: HotPath<DB>,
        meter: Option<Arc<Meter>>,
        audience: Audience,
    ) -> Self {
        let hooks = Hooks::new(hooks);
        let refresh = None;
        Self { shared: Arc::new(Shared { store, hooks, hot_path, meter, audience, refresh }) }
    }

    /// Not to be called: it exists for its compile error, which explains that events are written inside of a
    /// transaction.
    #[doc(hidden)]
    pub fn write<E: InTransaction>(&self, _: E) {}

    /// Begins a transaction. On SQLite it holds the write lock from the start, so that it cannot fail half-way because
    /// of another writer.
    ///
    /// # Errors
    /// [`Error::Database`] if the pool has no connection within its `acquire_timeout`, or the database fails.
    /// [`Error::WriterLockTimeout`] if on SQLite another transaction of this process stays open for that long; a task
    /// that begins a second one while its first is open gets it as well: pass on the `&mut Tx` instead.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the pool's queue and leaves no transaction open.
    pub async fn begin(&self) -> Result<Tx<DB>, Error> {
        if let Some(refresh) = self.shared.refresh.as_ref().filter(|refresh| refresh.is_due()) {
            // Boxed: with TLS in the driver it is large, and it is rarely due.
            let (store, recipients) = (&self.shared.store, &self.shared.audience.recipients);
            Box::pin(refresh.run(store, recipients)).await;
        }
        Tx::begin(Arc::clone(&self.shared), Purpose::Write).await
    }

    /// Begins a transaction for a call of a listener.
    pub(crate) async fn begin_settling(&self) -> Result<Tx<DB>, Error> {
        Tx::begin(Arc::clone(&self.shared), Purpose::Settle).await
    }

    /// Runs a transaction: commits if the closure returns `Ok`, and rolls back if it does not.
    ///
    /// `E` is any error that an [`Error`] converts into, such as [`Error`] itself, `anyhow::Error` or `Box<dyn
    /// std::error::Error>`. The closure gets a `&mut Tx`, so statements run on `&mut **tx`.
    ///
    /// ```no_run
    /// # use outbox::tx::Writer;
    /// # use outbox::{Error, EventType};
    /// # async fn example(writer: Writer<sqlx::Sqlite>, placed: impl EventType) -> Result<(), Error> {
    /// let order_id = writer.transaction(async |tx| {
    ///     let inserted = sqlx::query("INSERT INTO orders DEFAULT VALUES").execute(&mut **tx).await?;
    ///     tx.write(placed)?;
    ///     Ok::<_, Error>(inserted.last_insert_rowid())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the error of the closure after the rollback, or an [`Error`] if the transaction cannot be begun
    /// ([`begin`](Self::begin)) or committed ([`Tx::commit`]).
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction is rolled back, unless its commit was already sent.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Tx<DB>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut tx = self.begin().await?;
        match work(&mut tx).await {
            Ok(value) => {
                tx.commit().await?;
                Ok(value)
            }
            Err(error) => {
                tx.rollback().await?;
                Err(error)
            }
        }
    }
}
