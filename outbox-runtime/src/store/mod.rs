//! The only SQL: one table, three databases.
//!
//! # Layout
//! [`Table`] is the checked name. A `Dialect` holds the differences between the databases as templates,
//! `Statements` renders them once for a table, and [`Backend`] is the interface to a driver. `columns` lists the
//! columns of the table and reads rows by column; `filter` selects events.
//!
//! The operations are methods of [`Store`], each for a whole batch, one file for each group: `insert` with
//! `insert_conflict`, `claim`, `settle`, `dead`, `purge`, `stats`, `unroutable`, `schema` with `migration_lock` and
//! `rights`, and for displays `inspect` with `event_query`, `pending`, `pending_change`, `blocked` and `doctor`. For tests of
//! applications, `harness` controls the clock and injects faults. `relay_lock` lets one node at a time deliver.
//! `subscription` and `node` are the tables of the registered subscriptions and of the running nodes, with
//! `subscription_rows` and `node_state` for displays.
//!
//! Times that decide anything are the database's, at the statement. A lease is a visibility time-out:
//! claiming moves `available_at` forward, so that claimed rows leave the head of the index, and an
//! expired lease is simply due again.

pub(crate) mod backend;
mod batch;
mod blocked;
mod candidates;
mod claim;
mod columns;
mod connection;
mod contention;
mod database_error;
mod dead;
mod dialect;
mod doctor;
mod event_query;
mod expand;
mod explain;
mod fan_out;
mod filter;
mod fingerprint;
mod history;
mod identity;
mod insert;
mod insert_conflict;
mod inspect;
mod migration_lock;
mod node;
mod node_state;
mod order;
mod ordered_claim;
mod peek;
mod pending;
mod pending_change;
mod position;
mod purge;
mod relay_lock;
mod renew;
mod restore_order;
mod rights;
mod row;
pub(crate) mod run;
mod run_to_end;
mod schema;
mod server;
mod session;
mod settle;
mod skip_locked;
mod statements;
mod stats;
mod subscription;
mod subscription_rows;
mod transaction;
mod type_filter;
mod unroutable;
mod writer_lock;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg_attr(
    not(feature = "testing"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "only the testing kit makes one")
)]
pub(crate) mod harness;
#[cfg(feature = "testing")]
mod testing;

pub use backend::Backend;
pub use blocked::{BlockReason, BlockedAggregate};
pub use claim::{ClaimRequest, Claims, Lease, Quota};
pub use database_error::DatabaseErrorKind;
pub use dead::DeadEvent;
pub(crate) use dead::DeadKey;
pub use doctor::{DoctorOptions, Finding, FindingLevel};
pub use event_query::{EventQuery, Payloads};
pub use expand::ExpandedRow;
pub use filter::{DeadFilter, EventFilter};
pub(crate) use fingerprint::pattern;
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use history::Failure;
pub(crate) use identity::TableIdentity;
pub use insert::{InitialState, Inserted, NewRow};
pub use inspect::EventRow;
pub use node::NodeRow;
pub use node_state::{Node, NodeListener};
use order::LockedOut;
pub(crate) use ordered_claim::OrderedRequest;
pub use peek::NextDue;
pub use pending::PendingType;
pub(crate) use pending_change::PendingChange;
pub use position::Position;
pub use purge::{Aged, Purged};
pub(crate) use relay_lock::{LockSession, LockTiming, Taken};
pub use renew::Renewal;
pub(crate) use rights::Operation;
pub use row::{Claim, Undecodable};
pub use schema::{
    SchemaState, adoption_sql, migrate, migrate_ordered, migration_sql, migration_sql_from,
    migration_sql_ordered,
};
pub(crate) use settle::LockedRows;
pub use settle::{Completion, Settlement, Unsettled};
pub use stats::Stats;
pub use subscription::Registered;
pub use subscription_rows::{Subscription, SubscriptionPattern};
#[cfg(feature = "testing")]
pub(crate) use testing::Cleared;
pub use type_filter::{ClaimKey, TypeFilter};
pub use unroutable::UnroutableType;

use std::sync::Arc;

use sqlx::{Connection, Pool, SqlStr};

use crate::Error;
pub use crate::error::SchemaError;
use crate::ordering::OnDead;
pub use crate::table::{DEFAULT_TABLE, Table, TableError};
#[doc(hidden)]
pub use batch::Arg;
use connection::{StickyConnection, with_connection};
use contention::retrying;
#[doc(hidden)]
pub use explain::{EXPLAINER, Explained};
use harness::fault_point;
use statements::Statements;
pub(crate) use transaction::Purpose;
pub(crate) use writer_lock::WriterGuard;
use writer_lock::WriterLock;

/// A handle that has a store, for the tests of this project. It is no part of the public API: who settles rows with it
/// can break fencing.
pub trait StoreOf<DB: Backend> {
    /// Returns the store.
    fn store(&self) -> &Store<DB>;
}

/// One outbox's table on one database.
#[derive(Debug)]
pub struct Store<DB: Backend> {
    pool: Pool<DB>,
    table: Table,
    /// The name of the outbox, for spans, log lines and metrics.
    name: Option<Arc<str>>,
    sql: Arc<Statements>,
    writer_lock: WriterLock,
    sticky: Option<StickyConnection<DB>>,
    /// Present if the pool is the relay's own.
    relay: Option<Arc<session::RelaySession<DB>>>,
    /// Begins a transaction with the settings for a piece of work, where the session does not have them.
    settings: Option<SqlStr>,
    /// Present in tests.
    harness: Option<harness::TestHarness>,
    /// Since when another session has kept this one from claiming in order.
    locked_out: Arc<LockedOut>,
}

impl<DB: Backend> Clone for Store<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            table: self.table.clone(),
            name: self.name.clone(),
            sql: Arc::clone(&self.sql),
            writer_lock: self.writer_lock.clone(),
            sticky: self.sticky.clone(),
            relay: self.relay.clone(),
            settings: self.settings.clone(),
            harness: self.harness.clone(),
            locked_out: Arc::clone(&self.locked_out),
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns the store of a table, without asking the database anything.
    pub fn new(pool: Pool<DB>, table: Table) -> Self {
        let sql = Arc::new(Statements::new(DB::DIALECT, &table));
        let writer_lock = WriterLock::new(DB::file(&pool));
        Self {
            pool,
            table,
            name: None,
            sql,
            writer_lock,
            sticky: None,
            relay: None,
            settings: statements::settings(DB::DIALECT, None),
            harness: None,
            locked_out: Arc::default(),
        }
    }

    /// Returns the name of the table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the same store with the name of its outbox.
    pub(crate) fn named(mut self, name: Option<&str>) -> Self {
        self.name = name.map(Arc::from);
        self
    }

    /// Returns the name of the outbox, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Returns whether a transaction that writes keeps all others from writing.
    pub(crate) fn has_one_writer(&self) -> bool {
        !DB::DIALECT.remote
    }

    /// Waits for the writer lock, no longer than for a connection.
    async fn acquire_writer(&self) -> Result<WriterGuard, Error> {
        let limit = self.pool.options().get_acquire_timeout();
        self.writer_lock.acquire(limit).await.ok_or(Error::WriterLockTimeout { after: limit })
    }

    /// Runs a statement that changes rows, and tries again while it fails because of concurrent transactions.
    async fn change(
        &self,
        doing: &'static str,
        sql: &SqlStr,
        args: impl Fn() -> Vec<Arg>,
    ) -> Result<u64, Error> {
        let _guard = self.acquire_writer().await?;
        retrying!(doing, self.change_once(sql, args()).await)
    }

    async fn change_once(&self, sql: &SqlStr, args: Vec<Arg>) -> sqlx::Result<u64> {
        with_connection!(self, by_key connection => self.change_on(connection, sql, args).await)
    }

    async fn change_on(
        &self,
        connection: &mut DB::Connection,
        sql: &SqlStr,
        args: Vec<Arg>,
    ) -> sqlx::Result<u64> {
        if !DB::DIALECT.work_for_changes {
            return DB::execute(connection, sql.clone(), args).await.map(|done| done.rows);
        }
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let done = DB::execute(&mut work, sql.clone(), args).await?;
        work.commit().await?;
        Ok(done.rows)
    }

    /// Runs a statement that only reads.
    async fn rows(
        &self,
        doing: &'static str,
        sql: SqlStr,
        args: Vec<Arg>,
    ) -> Result<Vec<DB::Row>, Error> {
        self.rows_once(sql, args).await.map_err(Error::database(doing))
    }

    async fn rows_once(&self, sql: SqlStr, args: Vec<Arg>) -> sqlx::Result<Vec<DB::Row>> {
        with_connection!(self, connection => self.read_on(connection, sql, args).await)
    }

    async fn read_on(
        &self,
        connection: &mut DB::Connection,
        sql: SqlStr,
        args: Vec<Arg>,
    ) -> sqlx::Result<Vec<DB::Row>> {
        if !DB::DIALECT.work_for_changes || self.relay.is_some() {
            return DB::fetch(connection, sql, args).await;
        }
        // The application's sessions may have `autocommit = 0`: even a read begins a transaction then, which would
        // stay open.
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let rows = DB::fetch(&mut work, sql, args).await?;
        work.commit().await?;
        Ok(rows)
    }

    /// Returns the number in the first column of the first row.
    async fn number(
        &self,
        doing: &'static str,
        sql: SqlStr,
        args: Vec<Arg>,
    ) -> Result<Option<i64>, Error> {
        let rows = self.rows(doing, sql, args).await?;
        rows.first().map_or(Ok(None), |row| DB::int(row, 0)).map_err(Error::database(doing))
    }
}
