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

/// A handle to a running outbox, from [`outbox::start`](crate::start) or [`Builder::start`](crate::Builder::start).
///
/// The handle writes events, controls their delivery in this process, and leads to what is stored:
///
/// | to | use |
/// |---|---|
/// | write events with statements of the application | [`begin`](Self::begin), [`transaction`](Self::transaction) |
/// | write in a transaction of another layer | [`write_in`](Self::write_in), [`committed`](Self::committed) |
/// | stop delivering | [`pause`](Self::pause), [`resume`](Self::resume), [`shutdown`](Self::shutdown) |
/// | deliver in tests and periodic jobs | [`poll_once`](Self::poll_once), [`drained`](Self::drained) |
/// | replay or discard dead letters | [`dead_events`](Self::dead_events) |
/// | list and count events, examine the table | [`admin`](Self::admin) |
///
/// Cloning it is cheap, and all clones are handles to the same outbox: keep one in the state of a web server, for
/// example. The type parameter is the database, `Outbox<sqlx::Postgres>`.
///
/// Delivery runs in tasks in the background. It survives listeners that panic, and a database that is unreachable for
/// any time.
///
/// # Shutdown
///
/// Call [`shutdown`](Self::shutdown) before the process ends, so that its claimed events are released at once. If the
/// last handle is dropped without a shutdown, all loops stop immediately, as in a crash, and other processes deliver
/// the claimed events after their leases expire.
///
/// ```no_run
/// use outbox::EventEnvelope;
///
/// # async fn example(pool: sqlx::SqlitePool) -> outbox::Result<()> {
/// let outbox = outbox::start(pool).await?;
///
/// let mut tx = outbox.begin().await?;
/// sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *tx).await?;
/// tx.write(EventEnvelope::json("OrderPlaced", r#"{"order_id":7}"#)?)?;
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

    /// Begins a transaction in which the application runs its statements and writes its events.
    ///
    /// The returned [`Tx`] derefs to the connection. It is rolled back if it is dropped without a commit. It uses one
    /// connection of the application's pool, with the isolation level of its session. On SQLite it holds the
    /// writer lock from the start, so that it cannot fail half-way because of another writer.
    ///
    /// ```
    /// # use outbox::EventType;
    /// # #[derive(EventType)]
    /// # #[outbox(aggregate = "Order")]
    /// # enum OrderEvent { #[outbox(no_listener)] Placed { order_id: i64 } }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # let registry = outbox::listener::ListenerRegistry::new();
    /// # let kit = outbox::testing::outbox().listeners(registry);
    /// # let kit = kit.schema("CREATE TABLE orders (id INTEGER)").start().await;
    /// # let outbox: outbox::Outbox<sqlx::Sqlite> = (*kit).clone();
    /// let mut tx = outbox.begin().await?;
    /// sqlx::query("INSERT INTO orders (id) VALUES (?)").bind(7).execute(&mut *tx).await?;
    /// tx.write(OrderEvent::Placed { order_id: 7 })?;
    /// tx.commit().await?;
    /// # assert_eq!(kit.published().await.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Database`] if the pool has no connection within its `acquire_timeout`, or the database fails. If the
    ///   pool is exhausted, look for transactions that stay open, or give it more connections.
    /// - [`Error::WriterLockTimeout`] if another transaction of this process stays open for as long (SQLite). A task
    ///   that begins a second transaction while its first is open waits for itself: pass on the `&mut Tx` instead.
    ///
    /// # Cancel safety
    /// If the future is dropped, no transaction stays open.
    pub async fn begin(&self) -> Result<Tx<DB>, Error> {
        self.inner.writer.begin().await
    }

    /// Runs a closure in a transaction, which is committed if the closure returns `Ok` and rolled back if it returns an
    /// error.
    ///
    /// It is the short form of [`begin`](Self::begin) and `commit`, in which no path can forget the commit. The closure
    /// has an error type of its own; it must convert from [`Error`].
    ///
    /// ```
    /// # use outbox::EventEnvelope;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # let registry = outbox::listener::ListenerRegistry::new();
    /// # let kit = outbox::testing::outbox().listeners(registry);
    /// # let kit = kit.schema("CREATE TABLE orders (id INTEGER)").start().await;
    /// # let outbox: outbox::Outbox<sqlx::Sqlite> = (*kit).clone();
    /// let order_id = outbox.transaction(async |tx| {
    ///     let order = sqlx::query("INSERT INTO orders DEFAULT VALUES").execute(&mut **tx).await?;
    ///     let order_id = order.last_insert_rowid();
    ///     tx.write(EventEnvelope::json("OrderPlaced", format!(r#"{{"order_id":{order_id}}}"#))?)?;
    ///     Ok::<_, outbox::Error>(order_id)
    /// }).await?;
    /// # assert_eq!((order_id, kit.published().await.len()), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the error of the closure, or an [`Error`] if the transaction cannot be begun (see
    /// [`begin`](Self::begin)) or committed (see [`Tx::commit`]).
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction is rolled back, unless its commit was already sent.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Tx<DB>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.inner.writer.transaction(work).await
    }

    /// Writes an event in a transaction that the application has begun itself. Returns `None` if a hook has suppressed
    /// the event.
    ///
    /// Use it where another layer owns the transactions, such as an ORM or a unit of work: it takes a plain connection
    /// or a `sqlx::Transaction`. Call it late in the transaction, because the row is inserted now and stays locked
    /// until the transaction ends. The [`Receipt`] is optional: with it, [`committed`](Self::committed) delivers the
    /// event at once; without it, the poller finds the event. See [`Writer::write_in`].
    ///
    /// ```
    /// use outbox::EventEnvelope;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # let registry = outbox::listener::ListenerRegistry::new();
    /// # let kit = outbox::testing::outbox().listeners(registry);
    /// # let kit = kit.schema("CREATE TABLE orders (id INTEGER)").start().await;
    /// # let (outbox, pool): (outbox::Outbox<sqlx::Sqlite>, _) = ((*kit).clone(), kit.pool().clone());
    /// let mut transaction = pool.begin().await?;                   // not by the outbox
    /// sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *transaction).await?;
    /// let placed = EventEnvelope::json("OrderPlaced", r#"{"order_id":7}"#)?;
    /// let receipt = outbox.write_in(&mut transaction, placed).await?;
    /// transaction.commit().await?;
    /// if let Some(receipt) = receipt {
    ///     outbox.committed(receipt).await?;
    /// }
    /// # assert_eq!(kit.published().await.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Nothing is written in any of these cases:
    ///
    /// - [`Error::NoTransaction`] if the connection has no open transaction: begin one first.
    /// - [`Error::TransactionLost`] if the database has ended it after a failed statement: roll it back and start
    ///   again.
    /// - [`Error::Event`] or [`Error::Hook`] if the event is invalid or refused; the transaction can still be used.
    /// - [`Error::Database`] if the database fails.
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

    /// Reports that the transaction of a [`Receipt`] was committed, so that its event is delivered at once, and calls
    /// the `after_commit` hooks.
    ///
    /// Not calling it costs only latency: the poller finds the event within its interval. See [`Writer::committed`].
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails; the poller finds the event then, so that the error can be ignored.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event is not lost: a poller delivers it, at the latest after a lease.
    pub async fn committed(&self, receipt: Receipt) -> Result<(), Error> {
        self.inner.writer.committed(receipt).await
    }

    /// Reports that the transaction of a [`Receipt`] was rolled back, which calls the `after_rollback` hooks.
    ///
    /// Only hooks need it: the event is not delivered in any case. See [`Writer::rolled_back`].
    pub fn rolled_back(&self, receipt: Receipt) {
        self.inner.writer.rolled_back(receipt);
    }

    /// Does not compile when it is called: the error message explains that events are written in a transaction.
    #[doc(hidden)]
    pub fn write<E: InTransaction>(&self, _: E) {}

    /// Claims one batch of due events now, and queues them for the workers. Returns the number of claimed events.
    ///
    /// The poller does this by itself; use it in programs that are started periodically, together with
    /// [`drained`](Self::drained), and in tests. An outbox that is paused or [stands by](crate::Relay::SingleActive)
    /// claims nothing.
    ///
    /// # Errors
    /// - [`Error::Database`] or [`Error::TimedOut`] if the database fails; no event is lost, so try again later.
    /// - [`Error::WriterOnly`] if this process has no relay.
    /// - [`Error::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    /// The claim runs in a task of its own. If the future is dropped, the claimed events are still delivered.
    pub async fn poll_once(&self) -> Result<usize, Error> {
        let relay = self.relay()?;
        relay.round().await
    }

    /// Waits until all due events are settled: a claim finds no more of them, and none is queued, running, or waiting
    /// to be recorded.
    ///
    /// Use it at the end of a periodic job, before [`shutdown`](Self::shutdown), and in tests. Events that become due
    /// later, such as delayed events and retries, are not waited for. In an outbox that is paused or [stands
    /// by](crate::Relay::SingleActive), only the events in flight are.
    /// While other processes keep writing, it may not return: bound it with a time-out.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// // A job that delivers everything that is due, and ends.
    /// let outbox = outbox::start(pool).await?;
    /// let drained = tokio::time::timeout(Duration::from_secs(300), outbox.drained()).await;
    /// outbox.shutdown().await?;
    /// drained??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Database`] or [`Error::TimedOut`] if the database fails; delivery continues in the background.
    /// - [`Error::WriterOnly`] if this process has no relay.
    /// - [`Error::Closed`] if the outbox is shut down, before the call or during it.
    ///
    /// # Cancel safety
    /// If the future is dropped, delivery continues.
    pub async fn drained(&self) -> Result<(), Error> {
        self.relay()?.drained().await
    }

    /// Pauses delivery in this process, until [`resume`](Self::resume) is called.
    ///
    /// Queued events are released for other processes, and running calls are completed. Events can still be written;
    /// they stay in the table. Use it for maintenance of something that all listeners depend on. Other processes are
    /// not paused: with [`Relay::SingleActive`](crate::Relay::SingleActive), one of them takes over when the running
    /// calls have ended.
    ///
    /// # Errors
    /// [`Error::WriterOnly`] if this process has no relay, and [`Error::Closed`] after a shutdown.
    pub fn pause(&self) -> Result<(), Error> {
        self.relay()?.pause();
        Ok(())
    }

    /// Resumes delivery after a [`pause`](Self::pause), starting with the events that have become due meanwhile.
    ///
    /// # Errors
    /// [`Error::WriterOnly`] if this process has no relay, and [`Error::Closed`] after a shutdown.
    pub fn resume(&self) -> Result<(), Error> {
        self.relay()?.resume();
        Ok(())
    }

    /// Returns whether this process delivers events: it has a relay that is neither paused nor shut down, and does not
    /// [stand by](crate::Relay::SingleActive) for the relay of another process.
    ///
    /// With [`Relay::SingleActive`](crate::Relay::SingleActive) it answers which process of a table is the active one,
    /// for example on a status page. The answer may change at any time, so do not decide about deliveries with it.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
    /// use outbox::config::Relay;
    ///
    /// let outbox = outbox::builder(pool).relay(Relay::SingleActive).start().await?;
    /// println!("{}", if outbox.is_active() { "delivers" } else { "stands by" });
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_active(&self) -> bool {
        self.inner.relay.as_ref().is_some_and(Relay::is_active)
    }

    /// Shuts down gracefully: completes what is in flight, records the results, and releases the rest for other
    /// processes.
    ///
    /// 1. No more events are claimed, and the purge and the statistics stop.
    /// 2. Queued events and running listeners have [`drain_timeout`](crate::Config::drain_timeout) to complete. Calls
    ///    that still run after that are cancelled: their futures are dropped.
    /// 3. The results are recorded. All other claimed events are released, without a failed attempt, so that another
    ///    process can deliver them at once instead of waiting for their leases.
    ///
    /// It returns within `drain_timeout` plus 10 seconds, which is 15 seconds by default, even if the database does not
    /// answer. Give the process that time in a rolling deploy (`terminationGracePeriodSeconds` on Kubernetes). Further
    /// calls have no effect. Transactions can still be begun afterwards; other processes deliver their events.
    ///
    /// ```no_run
    /// # async fn example(outbox: outbox::Outbox<sqlx::Postgres>) -> Result<(), Box<dyn std::error::Error>> {
    /// tokio::signal::ctrl_c().await?;          // or SIGTERM
    /// // Stop the web server first, so that no request is cut short.
    /// outbox.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::TimedOut`] if the last results could not be recorded: these events become
    /// available when their lease expires and are delivered again. There is nothing to repair; log the error. Further
    /// calls return [`Error::Closed`] then.
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

    /// Returns the handle for dead letters: events that were given up, as in the dead-letter queue of a message broker.
    ///
    /// Events that are replayed through it are delivered at once.
    ///
    /// ```no_run
    /// use outbox::dead::DeadFilter;
    ///
    /// # async fn example(outbox: outbox::Outbox<sqlx::Postgres>) -> outbox::Result<()> {
    /// // The mail server works again.
    /// let replayed = outbox.dead_events().replay_all(&DeadFilter::new().event_type("OrderPaid"), 500).await?;
    /// println!("{replayed} events are delivered again");
    /// # Ok(())
    /// # }
    /// ```
    pub fn dead_events(&self) -> &DeadEvents<DB> {
        &self.inner.dead
    }

    /// Returns the handle for looking into the table and for changing single events, for admin pages and health checks.
    ///
    /// Its [`stats`](Admin::stats) know the listeners of this process, and events that it makes due are delivered at
    /// once.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(outbox: outbox::Outbox<sqlx::Postgres>) -> outbox::Result<()> {
    /// let is_healthy = outbox.admin().stats().await?.oldest_overdue < Duration::from_secs(60);
    /// # Ok(())
    /// # }
    /// ```
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
