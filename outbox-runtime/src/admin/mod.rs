//! Looking into a table and maintaining it, for people and their tools.
//!
//! # Layout
//! [`Admin`] is the handle; `pending` has the changes to single events that are not delivered yet, and `subscriptions`
//! what concerns subscriptions and nodes.

mod pending;
mod subscriptions;

pub use subscriptions::DropSubscription;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::Pool;

use crate::Error;
use crate::dead::{DeadEvents, OnDeliverable};
use crate::store::{
    Backend, BlockedAggregate, DoctorOptions, EventQuery, EventRow, Finding, Payloads, PendingType,
    SchemaState, Stats, Store, Table, TypeFilter,
};

/// Lists, counts and examines the events of a table, and changes single ones.
///
/// It is the API behind the command line (`outbox status`, `outbox list`, `outbox doctor`), for admin pages, health
/// checks and tools of an application. [`Outbox::admin`](crate::Outbox::admin) returns the one of a running outbox.
/// [`Admin::new`] makes one for any table, for a program that runs no outbox itself. Cloning it is cheap.
///
/// | to | use |
/// |---|---|
/// | watch the backlog | [`stats`](Self::stats), [`pending_by_type`](Self::pending_by_type) |
/// | find out why an event is not delivered | [`find`](Self::find), [`blocked`](Self::blocked), [`doctor`](Self::doctor) |
/// | browse, or follow the table as it grows | [`list`](Self::list), [`follow`](Self::follow) |
/// | change a pending event | [`make_due`](Self::make_due), [`release`](Self::release), [`discard`](Self::discard) |
/// | replay or discard dead letters | [`dead`](Self::dead) |
/// | see who delivers, pause or drop a subscription | [`nodes`](Self::nodes), [`subscriptions`](Self::subscriptions), [`pause`](Self::pause), [`drop_subscription`](Self::drop_subscription) |
/// | check the schema before a deploy | [`verify`](Self::verify), [`schema_state`](Self::schema_state) |
///
/// It can be used on a large table while events are delivered: every query reads an index or a limited number of rows,
/// and counts stop at a limit (see [`Stats`]). Nothing here can interfere with a delivery in progress: a change to a
/// claimed event invalidates the claim, so that the result of its owner does not apply.
///
/// ```no_run
/// use outbox::admin::{Admin, DoctorOptions, EventFilter, EventQuery, Table};
/// use outbox::event::Status;
///
/// # async fn example(pool: sqlx::SqlitePool) -> outbox::Result<()> {
/// let admin = Admin::new(pool, Table::default());
///
/// let stats = admin.stats().await?;
/// println!("{} pending, the oldest for {:?}", stats.pending, stats.oldest_overdue);
///
/// let filter = EventFilter::new().event_type("Paid").tenant("acme");
/// for row in admin.list(&EventQuery::new().filter(filter).status(Status::Retry)).await? {
///     println!("{} has failed {} times", row.event_id, row.attempts);
/// }
///
/// for finding in admin.doctor(&DoctorOptions::new()).await? {
///     println!("{}: {finding}", finding.subject);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Every method that asks the database returns [`Error::Database`] if it fails or if the table is missing. On SQLite,
/// methods that change an event return [`Error::WriterLockTimeout`] if a transaction of this process stays open for too
/// long. The methods below name further errors.
///
/// # Cancel safety
/// The future of every method can be dropped. A change may have happened by then.
pub struct Admin<DB: Backend> {
    store: Store<DB>,
    /// The event types that this process has listeners for.
    handled: TypeFilter,
    deliverable: OnDeliverable,
}

impl<DB: Backend> Clone for Admin<DB> {
    fn clone(&self) -> Self {
        let (store, handled) = (self.store.clone(), self.handled.clone());
        Self { store, handled, deliverable: Arc::clone(&self.deliverable) }
    }
}

impl<DB: Backend> fmt::Debug for Admin<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("table", self.store.table()).finish_non_exhaustive()
    }
}

impl<DB: Backend> Admin<DB> {
    /// Makes a handle for a table, without connecting to the database.
    ///
    /// Events that it makes due are found by the pollers of other processes, within their poll interval.
    pub fn new(pool: Pool<DB>, table: Table) -> Self {
        Self::with(Store::new(pool, table), TypeFilter::ALL, Arc::new(|_| {}))
    }

    pub(crate) fn with(store: Store<DB>, handled: TypeFilter, deliverable: OnDeliverable) -> Self {
        Self { store, handled, deliverable }
    }

    /// Returns the table that this handle reads and changes.
    pub fn table(&self) -> &Table {
        self.store.table()
    }

    /// Returns the handle for the dead letters of the same table. In a running outbox, events that are replayed through
    /// it are delivered at once.
    pub fn dead(&self) -> DeadEvents<DB> {
        DeadEvents::with(self.store.clone(), Arc::clone(&self.deliverable))
    }

    /// Returns events of any status, newest first.
    ///
    /// Rows whose status is unknown to this program are left out. Payloads are read only on request, with
    /// [`Payloads::Include`].
    ///
    /// ```
    /// use outbox::admin::EventQuery;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # let registry = outbox::listener::ListenerRegistry::new();
    /// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
    /// # let mut tx = outbox.begin().await?;
    /// # let events = (0..5).map(|_| outbox::EventEnvelope::json("Paid", "{}"));
    /// # tx.write_all(events.collect::<Result<Vec<_>, _>>()?)?;
    /// # tx.commit().await?;
    /// # let admin = outbox.admin();
    /// // Page by page: the next one begins below the last sequence of this one.
    /// let mut query = EventQuery::new().limit(2);
    /// # let mut seen = 0;
    /// loop {
    ///     let page = admin.list(&query).await?;
    ///     let Some(last) = page.last() else { break };
    ///     query = query.below(last.sequence);
    ///     println!("{} events", page.len());
    /// #   seen += page.len();
    /// }
    /// # assert_eq!(seen, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn list(&self, query: &EventQuery) -> Result<Vec<EventRow>, Error> {
        self.store.list(query).await
    }

    /// Returns the event with an id, with its payload, or `None` if the table has none.
    ///
    /// It is the first step to find out why an event was not delivered: `status`, `attempts` (the number of failed
    /// attempts), `last_error`, `locked_by` and `available_at` of the row tell.
    ///
    /// ```no_run
    /// # async fn example(admin: outbox::admin::Admin<sqlx::Postgres>) -> outbox::Result<()> {
    /// match admin.find("01K5Q4V1C0Z9W3T2J7X8Y6R5PM").await? {
    ///     None => println!("never committed, purged, discarded, or in another table"),
    ///     Some(row) => println!("{} after {} failures: {:?}", row.status, row.attempts, row.last_error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn find(&self, event_id: impl AsRef<str>) -> Result<Option<EventRow>, Error> {
        Ok(self.store.find_event(event_id.as_ref()).await?.into_iter().next())
    }

    /// Returns the deliveries of an event, with its payload: that to the unnamed listener first, then those to
    /// subscriptions by name. Each has a status, attempts and failures of its own.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn deliveries(&self, event_id: impl AsRef<str>) -> Result<Vec<EventRow>, Error> {
        self.store.find_event(event_id.as_ref()).await
    }

    /// Returns the events after a sequence, in the order of their sequences, at most `limit`.
    ///
    /// This follows a table as it grows. Sequences are assigned at the insert and not at the commit, so an event with a
    /// lower sequence may appear later: read the last few seconds again, as `outbox tail` does with the help of
    /// [`sequences`](Self::sequences).
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn follow(
        &self,
        after: i64,
        limit: u32,
        payloads: Payloads,
    ) -> Result<Vec<EventRow>, Error> {
        self.store.follow(after, limit, payloads).await
    }

    /// Returns the sequences of the newest events after one sequence and up to another, at most `limit`.
    ///
    /// It reads less than [`follow`](Self::follow), to find out which of the events in a range that was read before are
    /// new.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn sequences(&self, after: i64, until: i64, limit: u32) -> Result<Vec<i64>, Error> {
        self.store.sequences(after, until, limit).await
    }

    /// Counts pending, claimed, dead and delivered events.
    ///
    /// In the `Admin` of a running outbox, [`Stats::unroutable`] counts pending events that this process has no
    /// listener for; otherwise it is zero. A running outbox reads the same numbers every 15 seconds for its metrics, so
    /// a dashboard needs no further queries.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.store.stats(&self.handled).await
    }

    /// Counts the pending events of each type, in the order of their names. An event is overdue if it has been due for
    /// longer than `overdue`.
    ///
    /// A type with overdue events and no claimed ones has no listener in a running process, or its listener is paused.
    /// Of new and of retried events it considers up to 100,000 each, those that have been due longest.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn pending_by_type(&self, overdue: Duration) -> Result<Vec<PendingType>, Error> {
        self.store.pending_by_type(overdue).await
    }

    /// Returns up to `limit` aggregates whose events wait behind one that is not delivered; none if the events of the
    /// table are not ordered ([`Ordering::PerAggregate`](crate::Ordering::PerAggregate)).
    ///
    /// Dead letters come first, then events that have been due for longer than a minute and are not claimed, then
    /// events that wait for their next attempt or for the end of a delay. Only aggregates with at least one waiting
    /// event are returned. Of each kind it considers up to 10,000 events: the dead letters with the lowest sequences,
    /// and those that have been due longest or will be due first.
    ///
    /// How the events of a table are ordered is what the last relay that started has recorded.
    ///
    /// ```no_run
    /// use outbox::admin::BlockReason;
    ///
    /// # async fn example(outbox: outbox::Outbox<sqlx::Postgres>) -> outbox::Result<()> {
    /// for blocked in outbox.admin().blocked(20).await? {
    ///     println!("{} {}: {} events wait", blocked.aggregate_type, blocked.aggregate_id, blocked.waiting);
    ///     if blocked.reason == BlockReason::Dead {
    ///         outbox.dead_events().replay(&blocked.event_id).await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails, or if the table is ordered and its order index is missing.
    pub async fn blocked(&self, limit: u32) -> Result<Vec<BlockedAggregate>, Error> {
        self.blocked_after(DoctorOptions::default().overdue, limit).await
    }

    /// Returns blocked aggregates as [`blocked`](Self::blocked) does, where an event is reported as not claimed if it
    /// has been due for longer than `overdue`.
    ///
    /// # Errors
    /// As with [`blocked`](Self::blocked).
    pub async fn blocked_after(
        &self,
        overdue: Duration,
        limit: u32,
    ) -> Result<Vec<BlockedAggregate>, Error> {
        self.store.blocked(overdue, limit).await
    }

    /// Counts the dead letters of each event type, the most frequent first. It considers up to 100,000 of them.
    ///
    /// [`DeadEvents::groups`](crate::DeadEvents::groups) counts them by cause as well.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn dead_by_type(&self) -> Result<Vec<(String, u64)>, Error> {
        self.store.dead_by_type().await
    }

    /// Counts the events that were delivered within this time, up to 100,000: the throughput of all processes together.
    ///
    /// Rows that were deleted on delivery ([`Completion::Delete`](crate::store::Completion::Delete)) or purged are not
    /// counted.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn recently_done(&self, within: Duration) -> Result<u64, Error> {
        self.store.recently_done(within).await
    }

    /// Counts the events that were delivered longer ago than `age`, up to 100,000: those that a purge with this
    /// retention would delete.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn count_old_done(&self, age: Duration) -> Result<u64, Error> {
        self.store.count_old_done(age).await
    }

    /// Counts the dead letters that were given up longer ago than `age`, up to 100,000: those that a purge with this
    /// `dead_retention` would delete. Dead letters that block an aggregate are not counted: a purge keeps them.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn count_old_dead(&self, age: Duration) -> Result<u64, Error> {
        self.store.count_old_dead(age).await
    }

    /// Returns the time of the database's clock, which decides when events are due. Compare it with
    /// [`EventRow::available_at`], instead of the clock of this process.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn now(&self) -> Result<SystemTime, Error> {
        self.store.now().await
    }

    /// Checks the schema, the server and the pending events for problems, and changes nothing.
    ///
    /// It looks for missing indexes, settings of the server that break or slow down delivery, long transactions,
    /// expired leases that no process has taken over, event types that are due and not claimed, and blocked aggregates. Each [`Finding`]
    /// has a severity and, if something is wrong, a remedy. If the table is missing, that is the only finding.
    ///
    /// Run it when events are not delivered, and before a deploy with the event types that the new program handles
    /// ([`DoctorOptions::types`]):
    ///
    /// ```no_run
    /// use outbox::admin::{DoctorOptions, FindingLevel};
    ///
    /// # async fn example(admin: outbox::admin::Admin<sqlx::Postgres>) -> outbox::Result<()> {
    /// let findings = admin.doctor(&DoctorOptions::new().types(["OrderPlaced", "OrderPaid"])).await?;
    /// let worst = findings.iter().map(|finding| finding.level).max();
    /// if worst >= Some(FindingLevel::Error) {
    ///     std::process::exit(1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn doctor(&self, options: &DoctorOptions) -> Result<Vec<Finding>, Error> {
        self.store.doctor(options).await
    }

    /// Compares the table with the schema that this program knows. It needs no privilege to change the table.
    ///
    /// Use [`verify`](Self::verify) if only the answer matters whether the table can be used.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails. A missing table is not an error here but [`SchemaState::Missing`].
    pub async fn schema_state(&self) -> Result<SchemaState, Error> {
        self.store.schema_state().await
    }

    /// Checks that this program can use the table as it is. It needs no privilege to change the table.
    ///
    /// Use it in a deployment whose processes may not migrate: before the start of the new program, it tells which SQL
    /// has to be run.
    ///
    /// # Errors
    /// [`Error::Schema`] if the table is missing, older or too new, with the SQL that it needs; [`Error::Database`] if
    /// the database fails.
    pub async fn verify(&self) -> Result<(), Error> {
        self.store.verify().await
    }

    /// Checks that an ordered outbox can use the table as it is: that it has the order index. It needs no privilege to
    /// change the table.
    ///
    /// # Errors
    /// [`Error::Schema`] with [`SchemaError::NotOrdered`](crate::error::SchemaError::NotOrdered) if something is missing,
    /// with the SQL that it needs; [`Error::Database`] if the database fails.
    pub async fn verify_ordered(&self) -> Result<(), Error> {
        self.store.verify_order().await
    }

    /// Returns whether the connection to the server is encrypted; `None` if the database has no server, as SQLite.
    ///
    /// The server is asked, so that behind a connection pooler the answer is about the connection from there to the
    /// server.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails.
    pub async fn is_encrypted(&self) -> Result<Option<bool>, Error> {
        self.store.is_encrypted().await
    }
}
