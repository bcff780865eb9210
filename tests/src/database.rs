use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outbox_runtime::store::{Store, Table, migrate};
use sqlx::database::HasStatementCache;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, MySql, Pool, Postgres, SqlSafeStr, Sqlite};

use crate::MeasureCost;

/// A database that tests can have a fresh one of.
pub trait TestDatabase: MeasureCost + HasStatementCache {
    /// What the program `node` calls it.
    const SHORT_NAME: &'static str;

    /// Where to find the server; `None` if no server is needed.
    const URL_VARIABLE: Option<&'static str>;

    /// Moves every time of a table into the past, which is as good as waiting. `{micros}` is by how
    /// much.
    const AGE: &'static str;

    /// What a number is cast to, to be read as 64 bits.
    const WIDE: &'static str;

    /// The present time as SQL.
    const NOW: &'static str;

    /// What tells the session how to show plans.
    const SHOW_PLANS: Option<&'static str> = None;

    /// What comes before a statement to see its plan.
    const EXPLAIN: &'static str;

    /// The column of the plan's text.
    const PLAN_COLUMN: usize;

    /// What a plan must not contain: a sort, or a scan of the whole table.
    const COSTLY: &'static [&'static str];

    /// What a plan says that looks up rows by their primary key.
    const BY_KEY: &'static str;

    /// Fills a table with rows `{from}` to `{to}`, of event type `{type}` and status `{status}`, all
    /// due and ended two days ago, a microsecond apart.
    const FILL: &'static str;

    /// How much the server still has to tidy up behind changed rows, if it does so in the background.
    const UNTIDY: Option<&'static str>;

    /// How many sessions of this database wait for a lock.
    const LOCK_WAITS: &'static str;

    /// Brings the planner's statistics up to date.
    const ANALYZE: &'static str;

    /// Keeps the server from doing so by itself.
    const LEAVE_STATISTICS: Option<&'static str>;

    /// Begins a transaction that goes on seeing what is there now.
    const SNAPSHOT: &'static [&'static str];

    /// The options that lead to a database of this name.
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
    const LEAVE_STATISTICS: Option<&'static str> = None;
    const SNAPSHOT: &'static [&'static str] =
        &["BEGIN", "SELECT sequence FROM outbox_event LIMIT 1"];
    const UNTIDY: Option<&'static str> = None;
    const LOCK_WAITS: &'static str = "SELECT 0";

    fn named(_: &str, name: &str) -> sqlx::sqlite::SqliteConnectOptions {
        sqlx::sqlite::SqliteConnectOptions::new()
            .filename(file(name))
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(20))
            // The file is thrown away; what matters here is not that it survives a power cut.
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
    const EXPLAIN: &'static str = "EXPLAIN ";
    const PLAN_COLUMN: usize = 0;
    const COSTLY: &'static [&'static str] = &["Sort", "Seq Scan on outbox_event"];
    const BY_KEY: &'static str = "outbox_event_pkey";
    const FILL: &'static str = "INSERT INTO {table} (event_id, event_type, aggregate_type, payload, \
        status, available_at, created_at, done_at) SELECT 'e' || i, '{type}', 'Order', '{}', {status}, \
        t, t, t FROM (SELECT i, now() - interval '2 days' + i * interval '1 microsecond' AS t \
        FROM generate_series({from}, {to}) AS i) AS rows";
    const ANALYZE: &'static str = "ANALYZE outbox_event";
    const LEAVE_STATISTICS: Option<&'static str> =
        Some("ALTER TABLE outbox_event SET (autovacuum_enabled = off)");
    const SNAPSHOT: &'static [&'static str] =
        &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT sequence FROM outbox_event LIMIT 1"];
    const UNTIDY: Option<&'static str> = None;
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
    // MySQL has had another format for them since, and MariaDB has not.
    const SHOW_PLANS: Option<&'static str> =
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
    const LEAVE_STATISTICS: Option<&'static str> =
        Some("ALTER TABLE outbox_event STATS_AUTO_RECALC = 0");
    const SNAPSHOT: &'static [&'static str] = &[
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    ];
    const UNTIDY: Option<&'static str> = Some(
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

/// A database of one test's own.
#[derive(Debug)]
pub struct Fresh<DB: TestDatabase> {
    /// Its connections.
    pub pool: Pool<DB>,
    name: String,
    server: String,
}

impl<DB: TestDatabase> Fresh<DB> {
    /// Makes one; `None`, and a line that says so, where no server is given.
    pub async fn new() -> Option<Self> {
        let url = given_url::<DB>()?;
        Some(Self::at(&url).await)
    }

    /// Makes one on a server.
    pub async fn at(url: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        // Process ids come again, and a server may have been used before.
        let name = format!("outbox_{}_{number}_{:x}", std::process::id(), rand::random::<u32>());
        if DB::URL_VARIABLE.is_some() {
            let mut admin = DB::Connection::connect(url).await.expect("the server answers");
            let sql = format!("CREATE DATABASE {name}");
            DB::run(&mut admin, AssertSqlSafe(sql).into_sql_str()).await.expect("a new database");
        }
        Self::called(url, name).await
    }

    /// Another one on the same server, which is there already.
    pub async fn beside(&self, name: &str) -> Self {
        Self::called(&self.server, name.to_owned()).await
    }

    async fn called(url: &str, name: String) -> Self {
        let pool = PoolOptions::new()
            .max_connections(12)
            .acquire_timeout(Duration::from_secs(30))
            .connect_with(DB::named(url, &name))
            .await
            .expect("the new database answers");
        Self { pool, name, server: url.to_owned() }
    }

    /// What leads another program to it.
    pub fn url(&self) -> String {
        match self.server.rsplit_once('/') {
            Some((server, _)) => format!("{server}/{}", self.name),
            None => format!("sqlite:{}", file(&self.name).display()),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a connection pooler stands in front of the server: the port is then not the server's.
    pub async fn is_pooled(&self) -> bool {
        DB::SHORT_NAME == "postgres" && {
            let port = self.number("SELECT inet_server_port()::bigint").await;
            !self.server.contains(&format!(":{port}/"))
        }
    }

    /// The store of a migrated table.
    pub async fn store(&self) -> Store<DB> {
        self.store_of(&Table::default()).await
    }

    /// The store of a migrated table with a name.
    pub async fn store_of(&self, table: &Table) -> Store<DB> {
        migrate(&self.pool, table).await.expect("the table is made");
        Store::new(self.pool.clone(), table.clone())
    }

    /// The same database through one connection only.
    pub async fn single(&self) -> Pool<DB> {
        let options = (*self.pool.connect_options()).clone();
        PoolOptions::new().max_connections(1).connect_with(options).await.expect("a connection")
    }

    /// Runs SQL as it is.
    pub async fn run(&self, sql: impl Into<String>) {
        self.try_run(sql).await.expect("the SQL is right");
    }

    /// Runs SQL as it is.
    pub async fn try_run(&self, sql: impl Into<String>) -> sqlx::Result<()> {
        let mut connection = self.pool.acquire().await?;
        DB::run(&mut connection, AssertSqlSafe(sql.into()).into_sql_str()).await
    }

    /// Adds rows of a type and a status, due and ended two days ago. The first is event `e` + `from`.
    pub async fn fill(&self, event_type: &str, status: u8, from: u64, count: u64) {
        let sql = DB::FILL
            .replace("{table}", "outbox_event")
            .replace("{type}", event_type)
            .replace("{status}", &status.to_string())
            .replace("{from}", &from.to_string())
            .replace("{to}", &(from + count - 1).to_string());
        self.run(sql).await;
    }

    /// The number that a query gives.
    pub async fn number(&self, sql: impl Into<String>) -> i64 {
        let mut connection = self.pool.acquire().await.expect("a connection");
        let sql = AssertSqlSafe(sql.into()).into_sql_str();
        let rows = DB::fetch(&mut connection, sql, vec![]).await.expect("the SQL is right");
        DB::int(&rows[0], 0).expect("a number").unwrap_or(-1)
    }

    /// The rows of texts that a query gives.
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

/// The URL of the server that was given; empty if none is needed. `None`, and a line that says so,
/// where one is needed and not given.
pub fn given_url<DB: TestDatabase>() -> Option<String> {
    let Some(variable) = DB::URL_VARIABLE else { return Some(String::new()) };
    let url = std::env::var(variable).ok();
    if url.is_none() {
        left_out(variable);
    }
    url
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{name}.db"))
}

/// Says, past the capture of the test runner, that something was not tested.
fn left_out(variable: &str) {
    let text = format!("left out: {variable} is not set; `cargo xtask test` starts a server\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
}
