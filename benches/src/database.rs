//! Fresh databases, and events to fill them with.

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use crate::Result;

/// Creates a database with an empty outbox.
pub(crate) async fn fresh(url: &str, connections: u32) -> Result<PgPool> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!("bench_{}_{number}", std::process::id());
    let mut admin = PgConnection::connect(url).await?;
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await?;
    let options = url.parse::<PgConnectOptions>()?.database(&name);
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(connections)
        .test_before_acquire(false)
        .connect_with(options)
        .await?;
    outbox::admin::migrate(&pool, &outbox::admin::Table::default()).await?;
    Ok(pool)
}

/// Drops the database, so that its maintenance does not slow down the next benchmark.
pub(crate) async fn remove(url: &str, pool: PgPool) -> Result {
    let name = pool.connect_options().get_database().unwrap_or_default().to_owned();
    pool.close().await;
    let mut admin = PgConnection::connect(url).await?;
    let sql = AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"));
    sqlx::query(sql).execute(&mut admin).await?;
    Ok(())
}

/// Returns a JSON text of 300 bytes.
pub(crate) fn payload() -> String {
    format!(r#"{{"text":"{}"}}"#, "x".repeat(289))
}

/// The statistics that the planner has of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistics {
    /// Up to date, as after an idle period.
    Analysed,
    /// None, as in the first burst after a migration.
    Never,
}

impl Statistics {
    /// Returns a suffix for the name of a measurement.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Analysed => "",
            Self::Never => ", never analysed",
        }
    }

    /// Brings the table into this state.
    async fn apply(self, pool: &PgPool) -> Result {
        if self == Self::Analysed {
            sqlx::query("VACUUM (ANALYZE) outbox_event").execute(pool).await?;
        }
        sqlx::query("CHECKPOINT").execute(pool).await?;
        Ok(())
    }
}

/// Fills the table with events that are due.
pub(crate) async fn fill(pool: &PgPool, events: i32, statistics: Statistics) -> Result {
    fill_with(pool, events, 0, statistics).await
}

/// Fills the table with events that are due, of some aggregates in turn.
pub(crate) async fn fill_aggregates(
    pool: &PgPool,
    events: i32,
    aggregates: i32,
    statistics: Statistics,
) -> Result {
    fill_rows(pool, events, 0, Some(aggregates), statistics).await
}

/// Fills the table with events of a status.
pub(crate) async fn fill_with(
    pool: &PgPool,
    events: i32,
    status: i16,
    statistics: Statistics,
) -> Result {
    fill_rows(pool, events, status, None, statistics).await
}

async fn fill_rows(
    pool: &PgPool,
    events: i32,
    status: i16,
    aggregates: Option<i32>,
    statistics: Statistics,
) -> Result {
    let off = "ALTER TABLE outbox_event SET (autovacuum_enabled = off)";
    sqlx::query(off).execute(pool).await?;
    sqlx::query(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, \
            available_at, created_at) \
         SELECT 'e' || i, 'Benched', '__GLOBAL__', (i % $4)::text, $2::json, $3, t, t \
         FROM (SELECT i, now() - interval '1 hour' + i * interval '1 microsecond' AS t \
            FROM generate_series(1, $1) AS i) AS rows",
    )
    .bind(events)
    .bind(payload())
    .bind(status)
    .bind(aggregates)
    .execute(pool)
    .await?;
    statistics.apply(pool).await
}
