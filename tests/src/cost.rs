use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outbox_runtime::store::{Arg, Backend};
use sqlx::{AssertSqlSafe, MySql, Postgres, SqlSafeStr, SqlStr, Sqlite, Transaction};

/// The cost of one statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The number of rows it returned or changed.
    pub rows: u64,
    /// The amount of data it touched, in the unit of the database: pages on PostgreSQL and MariaDB, rows
    /// on MySQL, hundreds of virtual machine steps on SQLite.
    pub touched: u64,
    /// The duration of the statement.
    pub took: Duration,
}

/// A database that can report how much a statement touched.
pub trait MeasureCost: Backend {
    /// Runs a statement and measures it.
    fn cost(
        tx: &mut Transaction<'static, Self>,
        sql: SqlStr,
        args: Vec<Arg>,
    ) -> impl Future<Output = Cost> + Send;
}

/// The session counters, read before and after a statement.
const PAGES_OF_POSTGRES: &str = "\
    SELECT SUM(pg_stat_get_xact_blocks_fetched(oid))::bigint FROM pg_class \
    WHERE oid = 'outbox_event'::regclass \
        OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'outbox_event'::regclass)";

impl MeasureCost for Postgres {
    async fn cost(tx: &mut Transaction<'static, Self>, sql: SqlStr, args: Vec<Arg>) -> Cost {
        let before = number::<Self>(tx, PAGES_OF_POSTGRES).await;
        let begun = Instant::now();
        let rows = rows::<Self>(tx, sql, args).await;
        let took = begun.elapsed();
        let after = number::<Self>(tx, PAGES_OF_POSTGRES).await;
        Cost { rows, touched: (after - before).unsigned_abs(), took }
    }
}

impl MeasureCost for MySql {
    async fn cost(tx: &mut Transaction<'static, Self>, sql: SqlStr, args: Vec<Arg>) -> Cost {
        if number::<Self>(tx, "SELECT VERSION() NOT LIKE '%MariaDB%'").await == 1 {
            return reads_of_mysql(tx, sql, args).await;
        }
        // ANALYZE runs the statement and returns its statistics. Only MariaDB reports pages.
        let analyze = format!("ANALYZE FORMAT=JSON {}", sql.as_str());
        let analyze = AssertSqlSafe(analyze).into_sql_str();
        let begun = Instant::now();
        let analysis = Self::fetch(tx, analyze, args).await.expect("MariaDB analyses it");
        let took = begun.elapsed();
        let analysis = Self::text(&analysis[0], 0).expect("a text").unwrap_or_default();
        let analysis: serde_json::Value = serde_json::from_str(&analysis).expect("JSON");
        Cost { rows: 0, touched: sum(&analysis, "pages_accessed"), took }
    }
}

/// Measures the rows that a session has read, which MySQL counts. The query for the counter itself reads a constant
/// number of rows.
async fn reads_of_mysql(tx: &mut Transaction<'static, MySql>, sql: SqlStr, args: Vec<Arg>) -> Cost {
    const READS: &str = "SELECT CAST(SUM(variable_value) AS SIGNED) \
        FROM performance_schema.session_status WHERE variable_name LIKE 'Handler\\_read%'";
    let baseline = number::<MySql>(tx, READS).await;
    let before = number::<MySql>(tx, READS).await;
    let begun = Instant::now();
    let rows = rows::<MySql>(tx, sql, args).await;
    let took = begun.elapsed();
    let after = number::<MySql>(tx, READS).await;
    Cost { rows, touched: (after - before - (before - baseline)).unsigned_abs(), took }
}

/// Returns the sum of all values of a key, wherever it occurs.
fn sum(json: &serde_json::Value, key: &str) -> u64 {
    match json {
        serde_json::Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match value.as_u64() {
                Some(number) if name == key => number,
                _ => sum(value, key),
            })
            .sum(),
        serde_json::Value::Array(items) => items.iter().map(|item| sum(item, key)).sum(),
        _ => 0,
    }
}

impl MeasureCost for Sqlite {
    async fn cost(tx: &mut Transaction<'static, Self>, sql: SqlStr, args: Vec<Arg>) -> Cost {
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        tx.lock_handle().await.expect("the handle").set_progress_handler(100, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            true
        });
        let begun = Instant::now();
        let rows = rows::<Self>(tx, sql, args).await;
        let took = begun.elapsed();
        tx.lock_handle().await.expect("the handle").remove_progress_handler();
        Cost { rows, touched: steps.load(Ordering::Relaxed), took }
    }
}

async fn rows<DB: Backend>(tx: &mut Transaction<'static, DB>, sql: SqlStr, args: Vec<Arg>) -> u64 {
    let text = sql.as_str();
    if text.starts_with("SELECT") || text.contains("RETURNING") {
        DB::fetch(tx, sql, args).await.expect("the SQL is right").len() as u64
    } else {
        DB::execute(tx, sql, args).await.expect("the SQL is right").rows
    }
}

async fn number<DB: Backend>(tx: &mut Transaction<'static, DB>, sql: &'static str) -> i64 {
    let rows = DB::fetch(tx, sql.into_sql_str(), vec![]).await.expect("the SQL is right");
    DB::int(&rows[0], 0).expect("a number").unwrap_or_default()
}
