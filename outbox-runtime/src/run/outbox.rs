use std::fmt;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::relay::{CLOSING, Relay};
use crate::Error;
use crate::dead::DeadEvents;
use crate::event::IntoEnvelope;
use crate::service::Services;
use crate::store::{Backend, Store};
use crate::write::{InTransaction, Receipt, Tx, Writer};

/// A running outbox. Cloning it copies a handle.
///
/// Shut it down before the process ends, so that other processes need not wait for its leases. If
/// the last handle is dropped without that, everything stops at once, as in a crash.
pub struct Outbox<DB: Backend> {
    inner: Arc<Inner<DB>>,
}

struct Inner<DB: Backend> {
    writer: Writer<DB>,
    relay: Option<Relay<DB>>,
    /// What else runs in a process that only writes.
    extras: Services,
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
        f.debug_struct("Outbox").field("table", self.store().table()).finish_non_exhaustive()
    }
}

impl<DB: Backend> Outbox<DB> {
    pub(super) fn new(
        writer: Writer<DB>,
        relay: Option<Relay<DB>>,
        extras: Services,
        dead: DeadEvents<DB>,
        stop: CancellationToken,
    ) -> Self {
        let inner = Inner { writer, relay, extras, dead, _stop_when_dropped: stop.drop_guard() };
        Self { inner: Arc::new(inner) }
    }

    /// Begins a transaction that events can be written in.
    ///
    /// # Errors
    /// If no connection is to be had, or the database fails.
    pub async fn begin(&self) -> Result<Tx<DB>, Error> {
        self.inner.writer.begin().await
    }

    /// Runs a transaction: commits if the closure returns `Ok`, and rolls back if it does not.
    ///
    /// # Errors
    /// What the closure returned, or why the transaction could not be begun or committed.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Tx<DB>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.inner.writer.transaction(work).await
    }

    /// Writes an event in a transaction that is not ours. See [`Writer::write_in`].
    ///
    /// # Errors
    /// If the event is refused, or the database fails.
    pub async fn write_in(
        &self,
        connection: &mut DB::Connection,
        event: impl IntoEnvelope,
    ) -> Result<Option<Receipt>, Error> {
        self.inner.writer.write_in(connection, event).await
    }

    /// Says that the transaction of a receipt was committed. See [`Writer::committed`].
    ///
    /// # Errors
    /// If the database fails; the poller finds the event then.
    pub async fn committed(&self, receipt: Receipt) -> Result<(), Error> {
        self.inner.writer.committed(receipt).await
    }

    /// Says that the transaction of a receipt was rolled back. See [`Writer::rolled_back`].
    pub fn rolled_back(&self, receipt: Receipt) {
        self.inner.writer.rolled_back(receipt);
    }

    /// Not to be called: it exists to say, when somebody tries, that events are written inside of a
    /// transaction.
    #[doc(hidden)]
    pub fn write<E: InTransaction>(&self, _: E) {}

    /// Claims one batch of due events now and hands it to the workers; gives how many there were.
    /// For tests, and for programs that are started by the clock.
    ///
    /// # Errors
    /// If the database fails, if this process only writes, or after a shutdown.
    pub async fn poll_once(&self) -> Result<usize, Error> {
        let relay = self.relay()?;
        relay.round().await
    }

    /// Waits until everything that is due has been dealt with: nothing is queued, running, or yet to
    /// be recorded. Events that wait for their time, or for another attempt, are not waited for.
    ///
    /// # Errors
    /// If the database fails, if this process only writes, or after a shutdown.
    pub async fn drained(&self) -> Result<(), Error> {
        self.relay()?.drained().await
    }

    /// Stops calling listeners. What has not started goes back to the table, for other processes;
    /// what runs comes to its end. Writing goes on.
    ///
    /// # Errors
    /// If this process only writes, or after a shutdown.
    pub fn pause(&self) -> Result<(), Error> {
        self.relay()?.pause();
        Ok(())
    }

    /// Goes on after a [`pause`](Self::pause).
    ///
    /// # Errors
    /// If this process only writes, or after a shutdown.
    pub fn resume(&self) -> Result<(), Error> {
        self.relay()?.resume();
        Ok(())
    }

    /// Stops in good order: waits for the listeners, up to `dispatcher.drain_timeout`, records their
    /// results, and gives back everything else, so that another process can have it at once. Calling
    /// it again does no harm. Transactions can still be begun afterwards; their events are left to
    /// other processes.
    ///
    /// It returns within `dispatcher.drain_timeout` and 10 seconds, 15 seconds by default, also if the
    /// database does not answer.
    ///
    /// # Errors
    /// If the last results could not be recorded; their events will be delivered again.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let ended = match &self.inner.relay {
            Some(relay) => relay.shutdown().await,
            None => Ok(()),
        };
        let _ = tokio::time::timeout(CLOSING, self.inner.extras.stop()).await;
        ended
    }

    /// What has been given up. What is replayed through it is delivered at once.
    pub fn dead_events(&self) -> &DeadEvents<DB> {
        &self.inner.dead
    }

    /// The table.
    pub fn store(&self) -> &Store<DB> {
        self.inner.writer.store()
    }

    /// Returns what a test uses in place of the loops.
    #[cfg(feature = "testing")]
    pub(crate) fn stepper(&self) -> Option<&super::Stepper<DB>> {
        self.inner.relay.as_ref()?.stepper.as_ref()
    }

    fn relay(&self) -> Result<&Relay<DB>, Error> {
        let relay = self.inner.relay.as_ref().ok_or(Error::WriterOnly)?;
        if relay.is_closed() { Err(Error::Closed) } else { Ok(relay) }
    }
}
