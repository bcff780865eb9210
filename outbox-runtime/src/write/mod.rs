//! Writing events in the business transaction.
//!
//! # Layout
//! [`Writer`] begins transactions. [`Tx`] is one: it buffers events and inserts them as the last thing
//! before the commit. [`Savepoint`] is a part of one that can be undone. [`WriterHook`] looks on.
//! [`Seats`] is what the runtime offers: places for events that can be delivered at once. `acknowledge`
//! ends a transaction in which a listener has worked, `foreign` is for transactions that are not ours, and
//! `count` counts.

mod acknowledge;
mod count;
mod foreign;
mod hook;
mod hot_path;
mod permit_old;
mod savepoint;
mod tx;

pub(crate) use count::Counter;
pub use foreign::Receipt;
pub use hook::WriterHook;
pub(crate) use hot_path::HotPath;
pub use permit_old::{Hot, Left, NoSeats, Seat, Seats};
pub use savepoint::Savepoint;
pub use tx::{Tx, WriteOutcome, Written};

use std::sync::Arc;

use sqlx::Pool;

use crate::Error;
use crate::store::{Backend, Purpose, Store, Table};
use hook::Hooks;

/// Writes events in transactions of one database.
#[derive(Debug)]
pub struct Writer<DB: Backend> {
    shared: Arc<Shared<DB>>,
}

/// What every transaction of a writer needs.
#[derive(Debug)]
struct Shared<DB: Backend> {
    store: Store<DB>,
    hooks: Hooks,
    seats: Arc<dyn Seats>,
    counter: Option<Counter>,
}

/// What nothing is.
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
    /// A writer without hooks or seats: every event is left to a poller.
    pub fn new(pool: Pool<DB>, table: Table) -> Self {
        Self::with(pool, table, Vec::new(), Arc::new(NoSeats))
    }

    /// A writer with hooks, and with seats for events that can be delivered at once.
    pub fn with(
        pool: Pool<DB>,
        table: Table,
        hooks: Vec<Arc<dyn WriterHook>>,
        seats: Arc<dyn Seats>,
    ) -> Self {
        Self::of(Store::new(pool, table), hooks, seats, None)
    }

    /// A writer that counts.
    pub(crate) fn of(
        store: Store<DB>,
        hooks: Vec<Arc<dyn WriterHook>>,
        seats: Arc<dyn Seats>,
        counter: Option<Counter>,
    ) -> Self {
        Self { shared: Arc::new(Shared { store, hooks: Hooks::new(hooks), seats, counter }) }
    }

    /// The store that it writes to.
    pub fn store(&self) -> &Store<DB> {
        &self.shared.store
    }

    /// Not to be called: it exists to say, when somebody tries, that events are written inside of a
    /// transaction.
    #[doc(hidden)]
    pub fn write<E: InTransaction>(&self, _: E) {}

    /// Begins a transaction. On SQLite it has the write lock from the start, so it cannot fail half
    /// way because of another writer.
    ///
    /// # Errors
    /// If the pool has no connection within its `acquire_timeout`, or the database fails.
    /// [`Error::WriterLockTimeout`] if on SQLite another transaction of this process stays open for that
    /// long; a task that begins a second one while its first is open gets it as well.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue of the pool, and no transaction open.
    pub async fn begin(&self) -> Result<Tx<DB>, Error> {
        Tx::begin(Arc::clone(&self.shared), Purpose::Write).await
    }

    /// Begins a transaction for a listener.
    pub(crate) async fn begin_acknowledging(&self) -> Result<Tx<DB>, Error> {
        Tx::begin(Arc::clone(&self.shared), Purpose::Acknowledge).await
    }

    /// Runs a transaction: commits if the closure returns `Ok`, and rolls back if it does not.
    ///
    /// ```no_run
    /// # use outbox_runtime::{Error, store::Backend, write::Writer, event::EventType};
    /// # async fn example<DB: Backend>(writer: Writer<DB>, placed: impl EventType) -> Result<(), Error> {
    /// let order_id = writer.transaction(async |tx| {
    ///     // The business write, and then:
    ///     tx.write(placed)?;
    ///     Ok::<_, Error>(7)
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the closure returned, or why the transaction could not be begun or committed.
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
