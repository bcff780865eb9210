//! What a piece of work costs: CPU time of client and server, statements, commits, and bytes of write-ahead log.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgConnection, Postgres};

use crate::Result;
use crate::database::{Fresh, admin};
use crate::processes::{family_time, own_time, parent_of};

/// Statements that only begin or end a transaction are not counted; `COMMIT` is counted as a commit.
const STATEMENTS: &str = "SELECT COALESCE(SUM(calls), 0)::bigint FROM pg_stat_statements \
    JOIN pg_database ON oid = dbid WHERE datname = $1 \
    AND query !~* '^[[:space:]]*(begin|start transaction|commit|rollback)'";

/// The time that the sessions of a database may take to end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Counters of the server and of this process at one moment, or their difference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    pub(crate) client: Duration,
    /// `None` if the server is on another machine.
    pub(crate) server: Option<Duration>,
    /// `None` without the extension `pg_stat_statements`.
    pub(crate) statements: Option<i64>,
    pub(crate) commits: i64,
    pub(crate) wal_bytes: i64,
}

/// Counts what happens in one database.
pub(crate) struct Counter {
    session: PgConnection,
    server: Option<u32>,
    counts_statements: bool,
}

impl Counter {
    /// Prepares a database. Its connections are opened again, because only new ones count statements.
    pub(crate) async fn new(fresh: &mut Fresh<Postgres>, connections: usize) -> Result<Self> {
        let mut session = admin().await?;
        let process: i32 =
            sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut session).await?;
        let server = u32::try_from(process).ok().and_then(parent_of);
        let loaded =
            "SELECT current_setting('shared_preload_libraries') LIKE '%pg_stat_statements%'";
        let counts_statements: bool = sqlx::query_scalar(loaded).fetch_one(&mut session).await?;
        if counts_statements {
            let turn_on = format!(
                "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; \
                 ALTER DATABASE {} SET pg_stat_statements.track = 'top'",
                fresh.name()
            );
            sqlx::raw_sql(AssertSqlSafe(turn_on)).execute(&mut session).await?;
        }
        let mut counter = Self { session, server, counts_statements };
        fresh.close().await;
        counter.wait_for_sessions(fresh.name()).await?;
        fresh.reopen(connections).await?;
        Ok(counter)
    }

    /// Waits until all sessions of a database have ended: only then are all of their commits counted.
    async fn wait_for_sessions(&mut self, database: &str) -> Result {
        let query = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'";
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            let open: i64 =
                sqlx::query_scalar(query).bind(database).fetch_one(&mut self.session).await?;
            if open == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err("sessions of a database did not end".into())
    }

    /// Returns what a piece of work costs, and closes its connections.
    pub(crate) async fn measure(
        &mut self,
        fresh: &Fresh<Postgres>,
        work: impl AsyncFnOnce(&Fresh<Postgres>) -> Result,
    ) -> Result<Counters> {
        let before = self.read(fresh.name()).await?;
        work(fresh).await?;
        let after = self.read(fresh.name()).await?;
        fresh.close().await;
        self.wait_for_sessions(fresh.name()).await?;
        let commits = self.read(fresh.name()).await?.commits;
        Ok(Counters {
            client: after.client - before.client,
            server: after.server.zip(before.server).map(|(after, before)| after - before),
            statements: after
                .statements
                .zip(before.statements)
                .map(|(after, before)| after - before),
            commits: commits - before.commits,
            wal_bytes: after.wal_bytes - before.wal_bytes,
        })
    }

    /// Returns the counters of a database at this moment.
    pub(crate) async fn read(&mut self, database: &str) -> Result<Counters> {
        let statements = if self.counts_statements {
            let query = sqlx::query_scalar(STATEMENTS).bind(database);
            Some(query.fetch_one(&mut self.session).await?)
        } else {
            None
        };
        let (commits, wal_bytes): (i64, i64) = sqlx::query_as(
            "SELECT xact_commit, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint \
             FROM pg_stat_database WHERE datname = $1",
        )
        .bind(database)
        .fetch_one(&mut self.session)
        .await?;
        let server = self.server.and_then(family_time);
        Ok(Counters { client: own_time()?, server, statements, commits, wal_bytes })
    }
}
