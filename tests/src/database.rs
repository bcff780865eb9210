use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outbox_runtime::store::{Store, Table, migrate};
use sqlx::database::HasStatementCache;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, MySql, Pool, Postgres, SqlSafeStr, Sqlite};

use crate::MeasureCost;

/// A kind of database for which tests can create fresh databases.
pub trait TestDatabase: MeasureCost + HasStatementCache {
    /// The name of the database in the program `node`.
    const SHORT_NAME: &'static str;

    /// The variable with the URL of the server; `None` if no server is needed.
    const URL_VARIABLE: Option<&'static str>;

    /// Moves all times of a table into the past by `{micros}`, instead of waiting.
    const AGE: &'static str;

    /// The SQL type for casts to a 64-bit integer.
    const WIDE: &'static str;

    /// The current time as SQL.
    const NOW: &'static str;

    /// The current time as SQL, in microseconds since 1970.
    const NOW_MICROS: &'static str;

    /// An hour from now as SQL; with `-` for `{sign}`, an hour ago.
    const LATER: &'static str;

    /// Takes the lock of ordered claims on the default table, as a claim does, and keeps it.
    const HOLD_CLAIM_LOCK: &'static [&'static str] = &[];

    /// Sets the plan format of the session.
    const PLAN_FORMAT: Option<&'static str> = None;

    /// The prefix of a statement that shows its plan.
    const EXPLAIN: &'static str;

    /// The column of the plan text.
    const PLAN_COLUMN: usize;

    /// Texts that a plan must not contain: a sort, or a scan of the whole table.
    const COSTLY: &'static [&'static str];

    /// The text of a plan that finds rows by their primary key.
    const BY_KEY: &'static str;

    /// Fills a table with rows `{from}` to `{to}`, of event type `{type}` and status `{status}`, all due and
    /// settled two days ago, a microsecond apart.
    const FILL: &'static str;

    /// Counts old row versions that the server has yet to clean up, if it does so in the background.
    const CLEANUP_PENDING: Option<&'static str>;

    /// Counts the sessions of this database that wait for a lock.
    const LOCK_WAITS: &'static str;

    /// Updates the statistics of the planner.
    const ANALYZE: &'static str;

    /// Prevents the server from updating the statistics by itself.
    const FREEZE_STATISTICS: Option<&'static str>;

    /// Begins a transaction and takes its snapshot.
    const SNAPSHOT: &'static [&'static str];

    /// Returns the connect options of a database of this name.
    fn named(url: &str, name: &str) -> <Self::Connection as Connection>::Options;
}

impl TestDatabase for Sqlite {
    const SHORT_NAME: &'static str = "sqlite";
    const URL_VARIABLE: Option<&'static str> = None;
    const AGE: &'static str = "UPDATE {table} SET available_at = available_at - {micros}, \
        created_at = created_at - {micros}, done_at = done_at - {micros}, \
        locked_at = locked_at - {micros}";
    const WIDE: &'static str = "INTEGER";
    const NOW: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
    const NOW_MICROS: &'static str = Self::NOW;
    const LATER: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER) + {sign}3600000000";
    const EXPLAIN: &'static str = "EXPLAIN QUERY PLAN ";
    const PLAN_COLUMN: usize = 3;
    const COSTLY: &'static [&'static str] = &["TEMP B-TREE", "SCAN outbox_event\n", "SCAN entry\n"];
    const BY_KEY: &'static str = "INTEGER PRIMARY KEY";
    const FILL: &'static str = "WITH RECURSIVE n(i) AS (VALUES ({from}) UNION ALL SELECT i + 1 \
        FROM n WHERE i < {to}) INSERT INTO {table} (event_id, event_type, aggregate_type, payload, \
        status, available_at, created_at, done_at) SELECT 'e' || i, '{type}', 'Order', '{}', {status}, \
        t, t, t FROM (SELECT i, \
        CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 172800000000 + i AS t FROM n)";
    const ANALYZE: &'static str = "ANALYZE";
    const FREEZE_STATISTICS: Option<&'static str> = None;
    const SNAPSHOT: &'static [&'static str] =
        &["BEGIN", "SELECT sequence FROM outbox_event LIMIT 1"];
    const CLEANUP_PENDING: Option<&'static str> = None;
    const LOCK_WAITS: &'static str = "SELECT 0";

    fn named(_: &str, name: &str) -> sqlx::sqlite::SqliteConnectOptions {
        sqlx::sqlite::SqliteConnectOptions::new()
            .filename(file(name))
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(20))
            // The file is temporary and need not survive a power failure.
            .synchronous(sqlx::sqlite::SqliteSynchronous::Off)
    }
}

impl TestDatabase for Postgres {
    const SHORT_NAME: &'static str = "postgres";
    const URL_VARIABLE: Option<&'static str> = Some("OUTBOX_TEST_POSTGRES_URL");
    const AGE: &'static str = "UPDATE {table} SET \
        available_at = available_at - {micros} * interval '1 microsecond', \
        created_at = created_at - {micros} * interval '1 microsecond', \
        done_at = done_at - {micros} * interval '1 microsecond', \
        locked_at = locked_at - {micros} * interval '1 microsecond'";
    const WIDE: &'static str = "bigint";
    const NOW: &'static str = "now()";
    const NOW_MICROS: &'static str = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";
    const LATER: &'static str = "now() + {sign}1 * interval '1 hour'";
    const HOLD_CLAIM_LOCK: &'static [&'static str] = &[
        "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 2000",
        "SELECT pg_advisory_xact_lock(1869574755, 'outbox_event'::regclass::oid::int)",
    ];
    const EXPLAIN: &'static str = "EXPLAIN ";
    const PLAN_COLUMN: usize = 0;
    const COSTLY: &'static [&'static str] = &["Sort", "Seq Scan on outbox_event"];
    const BY_KEY: &'static str = "outbox_event_pkey";
    const FILL: &'static str = "INSERT INTO {table} (event_id, event_type, aggregate_type, payload, \
        status, available_at, created_at, done_at) SELECT 'e' || i, '{type}', 'Order', '{}', {status}, \
        t, t, t FROM (SELECT i, now() - interval '2 days' + i * interval '1 microsecond' AS t \
        FROM generate_series({from}, {to}) AS i) AS rows";
    const ANALYZE: &'static str = "ANALYZE outbox_event";
    const FREEZE_STATISTICS: Option<&'static str> =
        Some("ALTER TABLE outbox_event SET (autovacuum_enabled = off)");
    const SNAPSHOT: &'static [&'static str] =
        &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT sequence FROM outbox_event LIMIT 1"];
    const CLEANUP_PENDING: Option<&'static str> = None;
    const LOCK_WAITS: &'static str = "SELECT COUNT(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";

    fn named(url: &str, name: &str) -> sqlx::postgres::PgConnectOptions {
        url.parse::<sqlx::postgres::PgConnectOptions>().expect("a PostgreSQL URL").database(name)
    }
}

impl TestDatabase for MySql {
    const SHORT_NAME: &'static str = "mysql";
    const URL_VARIABLE: Option<&'static str> = Some("OUTBOX_TEST_MYSQL_URL");
    const AGE: &'static str = "UPDATE {table} SET \
        available_at = TIMESTAMPADD(MICROSECOND, -{micros}, available_at), \
        created_at = TIMESTAMPADD(MICROSECOND, -{micros}, created_at), \
        done_at = TIMESTAMPADD(MICROSECOND, -{micros}, done_at), \
        locked_at = TIMESTAMPADD(MICROSECOND, -{micros}, locked_at)";
    const WIDE: &'static str = "SIGNED";
    const NOW: &'static str = "UTC_TIMESTAMP(6)";
    const NOW_MICROS: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const LATER: &'static str = "TIMESTAMPADD(HOUR, {sign}1, UTC_TIMESTAMP(6))";
    const HOLD_CLAIM_LOCK: &'static [&'static str] = &["DO GET_LOCK(CONCAT('outbox:claim:', \
        LEFT(SHA2(CONCAT(LOWER(DATABASE()), '.outbox_event'), 256), 40)), 1)"];
    // Later versions of MySQL have another default format; MariaDB does not.
    const PLAN_FORMAT: Option<&'static str> =
        Some("SET @plans = 1 /*!80300 , SESSION explain_json_format_version = 1 */");
    const EXPLAIN: &'static str = "EXPLAIN FORMAT=JSON ";
    const PLAN_COLUMN: usize = 0;
    const COSTLY: &'static [&'static str] =
        &["\"filesort\"", "\"using_filesort\": true", "\"access_type\": \"ALL\""];
    const BY_KEY: &'static str = "\"key\": \"PRIMARY\"";
    const FILL: &'static str = "INSERT INTO {table} (event_id, event_type, aggregate_type, payload, \
        status, available_at, created_at, done_at) WITH d AS (SELECT 0 AS n UNION ALL SELECT 1 \
        UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL \
        SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9), numbers AS (SELECT a.n + \
        10 * b.n + 100 * c.n + 1000 * e.n + 10000 * f.n + 100000 * g.n + {from} AS i FROM d AS a, \
        d AS b, d AS c, d AS e, d AS f, d AS g) SELECT CONCAT('e', i), '{type}', 'Order', '{}', \
        {status}, t, t, t FROM (SELECT i, UTC_TIMESTAMP(6) - INTERVAL 2 DAY + INTERVAL i MICROSECOND \
        AS t FROM numbers WHERE i <= {to} ORDER BY i) AS filled ORDER BY i";
    const ANALYZE: &'static str = "ANALYZE TABLE outbox_event";
    const FREEZE_STATISTICS: Option<&'static str> =
        Some("ALTER TABLE outbox_event STATS_AUTO_RECALC = 0");
    const SNAPSHOT: &'static [&'static str] = &[
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    ];
    const CLEANUP_PENDING: Option<&'static str> = Some(
        "SELECT CAST(SUM(COUNT) AS SIGNED) FROM information_schema.INNODB_METRICS \
         WHERE NAME = 'trx_rseg_history_len'",
    );

    const LOCK_WAITS: &'static str = "SELECT CAST(COUNT(*) AS SIGNED) \
        FROM information_schema.innodb_trx JOIN information_schema.processlist \
        ON id = trx_mysql_thread_id WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()";

    fn named(url: &str, name: &str) -> sqlx::mysql::MySqlConnectOptions {
        url.parse::<sqlx::mysql::MySqlConnectOptions>().expect("a MySQL URL").database(name)
    }
}

/// A fresh database for one test.
#[derive(Debug)]
pub struct Fresh<DB: TestDatabase> {
    /// The connection pool.
    pub pool: Pool<DB>,
    name: String,
    server: String,
}

impl<DB: TestDatabase> Fresh<DB> {
    /// Creates a database; `None`, with a message, if no server is given.
    pub async fn new() -> Option<Self> {
        let url = given_url::<DB>()?;
        Some(Self::at(&url).await)
    }

    /// Creates a database on a server.
    pub async fn at(url: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        // Process ids are reused, and a server may have been used before.
        let name = format!("outbox_{}_{number}_{:x}", std::process::id(), rand::random::<u32>());
        if DB::URL_VARIABLE.is_some() {
            let mut admin = DB::Connection::connect(url).await.expect("the server answers");
            let sql = format!("CREATE DATABASE {name}");
            DB::run(&mut admin, AssertSqlSafe(sql).into_sql_str()).await.expect("a new database");
        }
        Self::connect(url, name).await
    }

    /// Connects to an existing database on the same server.
    pub async fn existing(&self, name: &str) -> Self {
        Self::connect(&self.server, name.to_owned()).await
    }

    async fn connect(url: &str, name: String) -> Self {
        let pool = PoolOptions::new()
            .max_connections(12)
            .acquire_timeout(Duration::from_secs(30))
            .connect_with(DB::named(url, &name))
            .await
            .expect("the new database answers");
        Self { pool, name, server: url.to_owned() }
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        match self.server.rsplit_once('/') {
            Some((server, _)) => format!("{server}/{}", self.name),
            None => format!("sqlite:{}", file(&self.name).display()),
        }
    }

    /// Returns the name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a connection pooler is in front of the server: then the port is not the server's.
    pub async fn is_pooled(&self) -> bool {
        DB::SHORT_NAME == "postgres" && {
            let port = self.number("SELECT inet_server_port()::bigint").await;
            !self.server.contains(&format!(":{port}/"))
        }
    }

    /// Migrates the default table, and returns its store.
    pub async fn store(&self) -> Store<DB> {
        self.store_of(&Table::default()).await
    }

    /// Migrates a table, and returns its store.
    pub async fn store_of(&self, table: &Table) -> Store<DB> {
        migrate(&self.pool, table).await.expect("the table is created");
        Store::new(self.pool.clone(), table.clone())
    }

    /// Returns a pool of one connection to the same database.
    pub async fn single(&self) -> Pool<DB> {
        let options = (*self.pool.connect_options()).clone();
        PoolOptions::new().max_connections(1).connect_with(options).await.expect("a connection")
    }

    /// Returns a pool of this many connections to the same database, which waits for a connection for a time.
    pub async fn pool_of(&self, connections: u32, wait: Duration) -> Pool<DB> {
        let options = (*self.pool.connect_options()).clone();
        let pool = PoolOptions::new().max_connections(connections).acquire_timeout(wait);
        pool.connect_with(options).await.expect("a connection")
    }

    /// Runs SQL; panics if it fails.
    pub async fn run(&self, sql: impl Into<String>) {
        self.try_run(sql).await.expect("the SQL is right");
    }

    /// Runs SQL.
    pub async fn try_run(&self, sql: impl Into<String>) -> sqlx::Result<()> {
        let mut connection = self.pool.acquire().await?;
        DB::run(&mut connection, AssertSqlSafe(sql.into()).into_sql_str()).await
    }

    /// Inserts rows of a type and a status, due and settled two days ago. The first event id is `e` + `from`.
    pub async fn fill(&self, event_type: &str, status: u8, from: u64, count: u64) {
        let sql = DB::FILL
            .replace("{table}", "outbox_event")
            .replace("{type}", event_type)
            .replace("{status}", &status.to_string())
            .replace("{from}", &from.to_string())
            .replace("{to}", &(from + count - 1).to_string());
        self.run(sql).await;
    }

    /// Returns the number that a query selects.
    pub async fn number(&self, sql: impl Into<String>) -> i64 {
        let mut connection = self.pool.acquire().await.expect("a connection");
        let sql = AssertSqlSafe(sql.into()).into_sql_str();
        let rows = DB::fetch(&mut connection, sql, vec![]).await.expect("the SQL is right");
        DB::int(&rows[0], 0).expect("a number").unwrap_or(-1)
    }

    /// Returns the rows of text columns that a query selects.
    pub async fn texts<const N: usize>(&self, sql: impl Into<String>) -> Vec<[String; N]> {
        let mut connection = self.pool.acquire().await.expect("a connection");
        let sql = AssertSqlSafe(sql.into()).into_sql_str();
        let rows = DB::fetch(&mut connection, sql, vec![]).await.expect("the SQL is right");
        let text = |row, column| DB::text(row, column).expect("a text").unwrap_or_default();
        rows.iter().map(|row| std::array::from_fn(|column| text(row, column))).collect()
    }
}

impl<DB: TestDatabase> Drop for Fresh<DB> {
    fn drop(&mut self) {
        if DB::URL_VARIABLE.is_none() {
            for ending in ["", "-wal", "-shm"] {
                let mut file = file(&self.name).into_os_string();
                file.push(ending);
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

/// Returns the URL of the given server; empty if none is needed. `None`, with a message, if one is needed and
/// not given.
pub fn given_url<DB: TestDatabase>() -> Option<String> {
    let Some(variable) = DB::URL_VARIABLE else { return Some(String::new()) };
    let url = std::env::var(variable).ok();
    if url.is_none() {
        report_skipped(variable);
    }
    url
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{name}.db"))
}

/// Reports a skipped test, bypassing the output capture of the test runner.
fn report_skipped(variable: &str) {
    let text = format!("skipped: {variable} is not set; `cargo xtask test` starts a server\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
}
