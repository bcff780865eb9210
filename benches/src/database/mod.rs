//! Fresh databases, and the raw SQL that the outbox is compared with. One trait has all that differs between databases.

mod mariadb;
mod postgres;
mod sqlite;

use std::sync::atomic::{AtomicU32, Ordering};

use outbox::admin::Table;
use outbox::config::Completion;
use outbox::tx::Backend;
use sqlx::pool::PoolOptions;
use sqlx::{Connection, Pool};

use crate::Result;
use crate::event::{RawRow, payload};

pub(crate) use postgres::{admin, database_url, old_snapshot};

type ConnectOptions<DB> = <<DB as sqlx::Database>::Connection as Connection>::Options;

/// A database of the benchmarks.
pub(crate) trait BenchDatabase: Backend {
    /// The name in the results.
    const LABEL: &'static str;
    /// Begins a transaction that writes.
    const BEGIN: &'static str;
    /// The number of raw loops that drain a table fastest.
    const LOOPS: usize;
    /// Inserts the events `{from}` to `{to}` of a status, due an hour ago, a microsecond apart. `{aggregate}` is an
    /// expression over `i`.
    const FILL: &'static str;
    /// Updates the statistics of the planner.
    const ANALYSE: &'static str;
    /// Prevents the server from updating the statistics by itself.
    const FREEZE: Option<&'static str>;
    /// Writes the pages of the fill to disk, so that this does not take place during a measurement.
    const FLUSH: Option<&'static str>;
    /// Returns the version of the server.
    const VERSION: &'static str;

    /// Creates an empty database.
    fn create(name: &str) -> impl Future<Output = Result<ConnectOptions<Self>>> + Send;

    /// Drops a database that has no connections of this process any more.
    fn drop(name: &str) -> impl Future<Output = Result> + Send;

    /// Runs a statement without arguments.
    fn run_sql(connection: &mut Self::Connection, sql: &str)
    -> impl Future<Output = Result> + Send;

    /// Returns the integer that a query returns.
    fn query_number(
        connection: &mut Self::Connection,
        sql: &str,
    ) -> impl Future<Output = Result<i64>> + Send;

    /// Returns the text that a query returns.
    fn query_text(
        connection: &mut Self::Connection,
        sql: &str,
    ) -> impl Future<Output = Result<String>> + Send;

    /// The baseline of a write: inserts rows with one statement.
    fn raw_insert(
        connection: &mut Self::Connection,
        rows: Vec<RawRow>,
    ) -> impl Future<Output = Result> + Send;

    /// The baseline of a claim: takes up to 500 due rows, reads their payloads, and returns their keys.
    fn raw_claim(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<Vec<i64>>> + Send;

    /// The baseline of a settlement: marks rows as done, or deletes them.
    fn raw_settle(
        connection: &mut Self::Connection,
        sequences: Vec<i64>,
        completion: Completion,
    ) -> impl Future<Output = Result> + Send;
}

/// The methods of [`BenchDatabase`] with the same text for every database; the driver's types differ.
macro_rules! same_for_all {
    () => {
        async fn run_sql(connection: &mut Self::Connection, sql: &str) -> Result {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(connection).await?;
            Ok(())
        }

        async fn query_number(connection: &mut Self::Connection, sql: &str) -> Result<i64> {
            let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()));
            Ok(query.fetch_one(connection).await?)
        }

        async fn query_text(connection: &mut Self::Connection, sql: &str) -> Result<String> {
            let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()));
            Ok(query.fetch_one(connection).await?)
        }
    };
}
use same_for_all;

/// The statistics that the planner has of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistics {
    /// Up to date, as after an idle period.
    Analysed,
    /// None, as in the first burst after a migration.
    Never,
}

impl Statistics {
    /// Returns the name in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Analysed => "analysed",
            Self::Never => "never",
        }
    }
}

/// Rows to fill a table with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    pub(crate) events: usize,
    /// The status of the rows: 0 is new, 1 is done.
    pub(crate) status: u8,
    /// The number of aggregates that the events belong to in turn; zero for none.
    pub(crate) aggregates: usize,
    pub(crate) statistics: Statistics,
}

/// A database of its own, with an empty outbox.
pub(crate) struct Fresh<DB: BenchDatabase> {
    pub(crate) pool: Pool<DB>,
    name: String,
}

impl<DB: BenchDatabase> Fresh<DB> {
    pub(crate) async fn create(connections: usize) -> Result<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench_{}_{number}", std::process::id());
        let options = DB::create(&name).await?;
        let pool = open::<DB>(options, connections).await?;
        outbox::admin::migrate(&pool, &Table::default()).await?;
        Ok(Self { pool, name })
    }

    /// Creates a database and fills it.
    pub(crate) async fn filled(connections: usize, fill: Fill) -> Result<Self> {
        let fresh = Self::create(connections).await?;
        fresh.fill(fill).await?;
        Ok(fresh)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Closes all connections, so that the server counts what they did.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    /// Opens connections after all were closed.
    pub(crate) async fn reopen(&mut self, connections: usize) -> Result {
        let options = (*self.pool.connect_options()).clone();
        self.pool = open::<DB>(options, connections).await?;
        Ok(())
    }

    pub(crate) async fn execute(&self, sql: &str) -> Result {
        DB::run_sql(&mut *self.pool.acquire().await?, sql).await
    }

    pub(crate) async fn number(&self, sql: &str) -> Result<i64> {
        DB::query_number(&mut *self.pool.acquire().await?, sql).await
    }

    /// Inserts events that are due, or settled.
    pub(crate) async fn fill(&self, fill: Fill) -> Result {
        if let Some(freeze) = DB::FREEZE {
            self.execute(freeze).await?;
        }
        let aggregate = match fill.aggregates {
            0 => "NULL".to_owned(),
            aggregates => format!("i % {aggregates}"),
        };
        let from = self.number("SELECT COALESCE(MAX(sequence), 0) + 1 FROM outbox_event").await?;
        let to = from + i64::try_from(fill.events)? - 1;
        if fill.events > 0 {
            let sql = DB::FILL
                .replace("{from}", &from.to_string())
                .replace("{to}", &to.to_string())
                .replace("{status}", &fill.status.to_string())
                .replace("{aggregate}", &aggregate)
                .replace("{payload}", &payload());
            self.execute(&sql).await?;
        }
        self.settle_down(fill.statistics).await
    }

    /// Updates the statistics if they are wanted, and writes changed pages to disk.
    pub(crate) async fn settle_down(&self, statistics: Statistics) -> Result {
        if statistics == Statistics::Analysed {
            self.execute(DB::ANALYSE).await?;
        }
        match DB::FLUSH {
            Some(flush) => self.execute(flush).await,
            None => Ok(()),
        }
    }

    /// Checks that all of some events are done and no other row is left.
    pub(crate) async fn check_done(&self, events: usize, completion: Completion) -> Result {
        let expected = if completion == Completion::Keep { i64::try_from(events)? } else { 0 };
        let all = self.number("SELECT COUNT(*) FROM outbox_event").await?;
        let done = self.number("SELECT COUNT(*) FROM outbox_event WHERE status = 1").await?;
        if (done, all) != (expected, expected) {
            return Err(format!("{done} of {all} rows are done, expected {expected}").into());
        }
        Ok(())
    }

    /// Drops the database, so that its maintenance does not slow down the next measurement.
    pub(crate) async fn remove(self) -> Result {
        self.pool.close().await;
        DB::drop(&self.name).await
    }
}

async fn open<DB: BenchDatabase>(
    options: ConnectOptions<DB>,
    connections: usize,
) -> Result<Pool<DB>> {
    let connections = u32::try_from(connections)?;
    let pool = PoolOptions::new().max_connections(connections).min_connections(connections);
    Ok(pool.test_before_acquire(false).connect_with(options).await?)
}

/// Returns the URL of a server.
fn url(variable: &str) -> Result<String> {
    std::env::var(variable)
        .map_err(|_| format!("{variable} is not set; `cargo xtask bench` starts a server").into())
}
