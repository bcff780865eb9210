//! Looking into a table and maintaining it, for people and their tools.
//!
//! # Layout
//! [`Admin`] is the handle; `pending` has the changes to single events that are not delivered yet.

mod pending;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::Pool;

use crate::Error;
use crate::dead::DeadEvents;
use crate::store::{
    Backend, DoctorOptions, EventQuery, EventRow, Finding, Payloads, PendingType, SchemaState,
    Stats, Store, Table, TypeFilter,
};

/// Lists, counts and examines the events of a table, and changes single ones.
///
/// [`Outbox::admin`](crate::Outbox::admin) returns the one of a running outbox. [`Admin::new`] makes one for any table,
/// for a tool or an admin page that runs no outbox itself. Cloning it is cheap.
///
/// Every query has a limit or reads an index, so it can be used on a large table while events are delivered. Counts
/// stop at 100,000. Nothing here can interfere with a delivery in progress: a change to a claimed event invalidates
/// the claim, so that the result of its owner does not apply.
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
/// # Cancel safety
/// The future of every method can be dropped. A change may have happened by then.
pub struct Admin<DB: Backend> {
    store: Store<DB>,
    /// The event types that this process has listeners for.
    handled: TypeFilter,
    /// Called when events have become due.
    due: Arc<dyn Fn() + Send + Sync>,
}

impl<DB: Backend> Clone for Admin<DB> {
    fn clone(&self) -> Self {
        let (store, handled) = (self.store.clone(), self.handled.clone());
        Self { store, handled, due: Arc::clone(&self.due) }
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
        Self::with(Store::new(pool, table), TypeFilter::ALL, Arc::new(|| {}))
    }

    pub(crate) fn with(
        store: Store<DB>,
        handled: TypeFilter,
        due: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self { store, handled, due }
    }

    /// Returns the name of the table.
    pub fn table(&self) -> &Table {
        self.store.table()
    }

    /// Returns the handle for dead letters.
    pub fn dead(&self) -> DeadEvents<DB> {
        DeadEvents::with(self.store.clone(), Arc::clone(&self.due))
    }

    /// Returns events of any status, newest first.
    ///
    /// Rows whose status is unknown to this program are left out. For the next page, pass the sequence of the last
    /// event to [`EventQuery::below`].
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn list(&self, query: &EventQuery) -> Result<Vec<EventRow>, Error> {
        self.store.list(query).await
    }

    /// Returns the event with an id, with its payload, or `None` if the table has none.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn find(&self, event_id: impl AsRef<str>) -> Result<Option<EventRow>, Error> {
        self.store.find_event(event_id.as_ref()).await
    }

    /// Returns the events after a sequence, in the order of their sequences, at most `limit`.
    ///
    /// This follows a table as it grows. Sequences are assigned at the insert and not at the commit, so an event with
    /// a lower sequence may appear later: read the last few seconds again, as `outbox tail` does.
    ///
    /// # Errors
    /// Returns an error if the database fails.
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
    /// It reads less than [`follow`](Self::follow), to find out which of the events that were read before are new.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn sequences(&self, after: i64, until: i64, limit: u32) -> Result<Vec<i64>, Error> {
        self.store.sequences(after, until, limit).await
    }

    /// Counts pending, claimed, dead and delivered events.
    ///
    /// In the `Admin` of a running outbox, [`Stats::unroutable`] counts pending events that this process has no
    /// listener for; otherwise it is zero.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.store.stats(&self.handled).await
    }

    /// Counts the pending events of each type, in the order of their names. An event is overdue if it has been due for
    /// longer than `overdue`.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn pending_by_type(&self, overdue: Duration) -> Result<Vec<PendingType>, Error> {
        self.store.pending_by_type(overdue).await
    }

    /// Counts the dead letters of each event type, the most frequent first.
    /// [`DeadEvents::groups`](crate::DeadEvents::groups) counts them by cause as well.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn dead_by_type(&self) -> Result<Vec<(String, u64)>, Error> {
        self.store.dead_by_type().await
    }

    /// Counts the events that were delivered within this time. Rows that were deleted on delivery or purged are not
    /// counted.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn recently_done(&self, within: Duration) -> Result<u64, Error> {
        self.store.recently_done(within).await
    }

    /// Counts the events that were delivered longer ago than `age`, which a purge with this retention would delete.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn count_old_done(&self, age: Duration) -> Result<u64, Error> {
        self.store.count_old_done(age).await
    }

    /// Counts the dead letters that were given up longer ago than `age`.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn count_old_dead(&self, age: Duration) -> Result<u64, Error> {
        self.store.count_old_dead(age).await
    }

    /// Returns the time of the database's clock, which decides when events are due.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn now(&self) -> Result<SystemTime, Error> {
        self.store.now().await
    }

    /// Checks the schema, the server and the pending events for problems, and changes nothing.
    ///
    /// Each [`Finding`] has a severity and, if something is wrong, a remedy. If the table is missing, that is the only
    /// finding.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn doctor(&self, options: &DoctorOptions) -> Result<Vec<Finding>, Error> {
        self.store.doctor(options).await
    }

    /// Compares the table with the schema that this program knows. It needs no privilege to change the table.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn schema_state(&self) -> Result<SchemaState, Error> {
        self.store.schema_state().await
    }

    /// Checks that this program can use the table as it is. It needs no privilege to change the table.
    ///
    /// # Errors
    /// Returns [`Error::Schema`] if the table is missing, older or too new, with the SQL that it needs, or an error if
    /// the database fails.
    pub async fn verify(&self) -> Result<(), Error> {
        self.store.verify().await
    }

    /// Returns whether the connection to the server is encrypted; `None` if the database has no server.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn is_encrypted(&self) -> Result<Option<bool>, Error> {
        self.store.is_encrypted().await
    }
}
