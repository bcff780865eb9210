use std::fmt;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::relay::{CLOSING, Relay};
use crate::Error;
use crate::admin::Admin;
use crate::dead::DeadEvents;
use crate::event::IntoEnvelope;
use crate::service::Services;
use crate::store::{Backend, Store, StoreOf};
use crate::write::{InTransaction, Receipt, Tx, Writer};

/// A handle to a running outbox. Cloning it is cheap: all clones are handles to the same outbox.
///
/// Call [`shutdown`](Self::shutdown) before the process ends, so that its claimed events are released at once. If
/// the last handle is dropped without a shutdown, all loops stop immediately, as in a crash, and other processes
/// deliver the claimed events after their leases expire.
///
/// ```no_run
/// use outbox::EventEnvelope;
///
/// # async fn example(pool: sqlx::SqlitePool) -> outbox::Result<()> {
/// let outbox = outbox::start(pool).await?;
///
/// let mut tx = outbox.begin().await?;
/// // The statements of the application run in the same transaction: `.execute(&mut *tx)`.
/// tx.write(EventEnvelope::json("OrderPaid", "{}")?)?;
/// tx.commit().await?;
///
/// outbox.shutdown().await?;
/// # Ok(())
/// # }
/// ```
pub struct Outbox<DB: Backend> {
    inner: Arc<Inner<DB>>,
}

struct Inner<DB: Backend> {
    writer: Writer<DB>,
    relay: Option<Relay<DB>>,
    /// The loops of a process without a relay, such as the purge.
    extras: Services,
    admin: Admin<DB>,
    dead: DeadEvents<DB>,
    _stop_when_dropped: DropGuard,
}

impl<DB: Backend> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<DB: Backend> fmt::Debug for Outbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("table", self.admin().table()).finish_non_exhaustive()
    }
}

impl<DB: Backend> Outbox<DB> {
    pub(super) fn new(
        writer: Writer<DB>,
        relay: Option<Relay<DB>>,
        extras: Services,
        admin: Admin<DB>,
        stop: CancellationToken,
    ) -> Self {
        let dead = admin.dead();
        let _stop_when_dropped = stop.drop_guard();
        let inner = Inner { writer, relay, extras, admin, dead, _stop_when_dropped };
        Self { inner: Arc::new(inner) }
    }

    /// Begins a transaction in which events can be written.
    ///
    /// # Errors
    /// [`Error::Database`] if the pool has no connection in time or the database fails, and
    /// [`Error::WriterLockTimeout`] if another transaction of this process stays open for too long (SQLite).
    ///
    /// # Cancel safety
    /// If the future is dropped, no transaction stays open.
    pub async fn begin(&self) -> Result<Tx<DB>, Error> {
        self.inner.writer.begin().await
    }

    /// Runs a closure in a transaction, which is committed if the closure returns `Ok` and rolled back if it
    /// returns an error.
    ///
    /// # Errors
    /// Returns the error of the closure, or an [`Error`] if the transaction cannot be begun or committed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction is rolled back, unless its commit was already sent.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Tx<DB>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.inner.writer.transaction(work).await
    }

    /// Writes an event in a transaction that the application has begun itself. Returns `None` if a hook has
    /// suppressed the event. See [`Writer::write_in`].
    ///
    /// # Errors
    /// [`Error::NoTransaction`] if the connection has no transaction, [`Error::TransactionLost`] if the database has
    /// ended it, [`Error::Event`] or [`Error::Hook`] if the event is refused, and [`Error::Database`] if the database
    /// fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event may or may not be part of the transaction: roll it back.
    pub async fn write_in(
        &self,
        connection: &mut DB::Connection,
        event: impl IntoEnvelope,
    ) -> Result<Option<Receipt>, Error> {
        self.inner.writer.write_in(connection, event).await
    }

    /// Reports that the transaction of a receipt was committed, so that its event is delivered at once. See
    /// [`Writer::committed`].
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails; the poller finds the event then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event is not lost: a poller delivers it, at the latest after a lease.
    pub async fn committed(&self, receipt: Receipt) -> Result<(), Error> {
        self.inner.writer.committed(receipt).await
    }

    /// Reports that the transaction of a receipt was rolled back. See [`Writer::rolled_back`].
    pub fn rolled_back(&self, receipt: Receipt) {
        self.inner.writer.rolled_back(receipt);
    }

    /// Does not compile when it is called: the error message explains that events are written in a transaction.
    #[doc(hidden)]
    pub fn write<E: InTransaction>(&self, _: E) {}

    /// Claims one batch of due events now, and queues them for the workers. Returns the number of claimed events.
    ///
    /// The poller does this by itself; use it in tests, and in programs that are started periodically.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::TimedOut`] if the database fails, [`Error::WriterOnly`] if this process has no
    /// relay, and [`Error::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    /// The claim runs in a task of its own. If the future is dropped, the claimed events are still delivered.
    pub async fn poll_once(&self) -> Result<usize, Error> {
        let relay = self.relay()?;
        relay.round().await
    }

    /// Waits until all due events are settled: a claim finds no more of them, and none is queued, running, or
    /// waiting to be recorded.
    ///
    /// Events that become due later, such as delayed events and retries, are not waited for. In a paused outbox
    /// only the events in flight are.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::TimedOut`] if the database fails, [`Error::WriterOnly`] if this process has no
    /// relay, and [`Error::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    /// If the future is dropped, delivery continues.
    pub async fn drained(&self) -> Result<(), Error> {
        self.relay()?.drained().await
    }

    /// Pauses delivery in this process. Queued events are released for other processes, and running calls are
    /// completed. Events can still be written.
    ///
    /// # Errors
    /// [`Error::WriterOnly`] if this process has no relay, and [`Error::Closed`] after a shutdown.
    pub fn pause(&self) -> Result<(), Error> {
        self.relay()?.pause();
        Ok(())
    }

    /// Resumes delivery after a [`pause`](Self::pause).
    ///
    /// # Errors
    /// [`Error::WriterOnly`] if this process has no relay, and [`Error::Closed`] after a shutdown.
    pub fn resume(&self) -> Result<(), Error> {
        self.relay()?.resume();
        Ok(())
    }

    /// Shuts down gracefully: waits for queued events and running listeners up to `drain_timeout`,
    /// records their verdicts, and releases all other claimed events, so that another process can deliver them at
    /// once.
    ///
    /// It returns within `drain_timeout` plus 10 seconds, which is 15 seconds by default, even if the
    /// database does not answer. Further calls have no effect. Transactions can still be begun afterwards; other
    /// processes deliver their events.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::TimedOut`] if the last verdicts could not be recorded; their events will be
    /// delivered again. Further calls return [`Error::Closed`] then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the shutdown is incomplete; call it again to complete it.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let ended = match &self.inner.relay {
            Some(relay) => relay.shutdown().await,
            None => Ok(()),
        };
        let _ = tokio::time::timeout(CLOSING, self.inner.extras.stop()).await;
        ended
    }

    /// Returns the handle for dead letters. Events that are replayed through it are delivered at once.
    pub fn dead_events(&self) -> &DeadEvents<DB> {
        &self.inner.dead
    }

    /// Returns the handle for looking into the table and for changing single events.
    pub fn admin(&self) -> &Admin<DB> {
        &self.inner.admin
    }

    /// Returns the object with which a test runs the steps of the loops, if it has replaced them.
    #[cfg(feature = "testing")]
    pub(crate) fn stepper(&self) -> Option<&super::Stepper<DB>> {
        self.inner.relay.as_ref()?.stepper.as_ref()
    }

    fn relay(&self) -> Result<&Relay<DB>, Error> {
        let relay = self.inner.relay.as_ref().ok_or(Error::WriterOnly)?;
        if relay.is_closed() { Err(Error::Closed) } else { Ok(relay) }
    }
}

impl<DB: Backend> StoreOf<DB> for Outbox<DB> {
    fn store(&self) -> &Store<DB> {
        self.inner.writer.store()
    }
}
