use outbox::config::Completion;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres};

use super::{BenchDatabase, Fresh, same_for_all, url};
use crate::Result;
use crate::event::RawRow;

const URL: &str = "OUTBOX_TEST_POSTGRES_URL";

impl BenchDatabase for Postgres {
    const LABEL: &'static str = "postgresql";
    const BEGIN: &'static str = "BEGIN";
    const LOOPS: usize = 2;
    const FILL: &'static str = "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, \
            payload, status, available_at, created_at, done_at) \
        SELECT 'e' || i, 'Benched', '__GLOBAL__', ({aggregate})::text, '{payload}', {status}, t, t, \
            CASE WHEN {status} = 1 THEN t END \
        FROM (SELECT i, now() - interval '1 hour' + i * interval '1 microsecond' AS t \
            FROM generate_series({from}, {to}) AS i) AS rows";
    const ANALYSE: &'static str = "VACUUM (ANALYZE) outbox_event";
    const FREEZE: Option<&'static str> =
        Some("ALTER TABLE outbox_event SET (autovacuum_enabled = off)");
    const FLUSH: Option<&'static str> = Some("CHECKPOINT");
    const VERSION: &'static str = "SELECT current_setting('server_version')";

    async fn create(name: &str) -> Result<PgConnectOptions> {
        let sql = format!("CREATE DATABASE {name}");
        sqlx::query(AssertSqlSafe(sql)).execute(&mut admin().await?).await?;
        Ok(url(URL)?.parse::<PgConnectOptions>()?.database(name))
    }

    async fn drop(name: &str) -> Result {
        let sql = format!("DROP DATABASE {name} WITH (FORCE)");
        sqlx::query(AssertSqlSafe(sql)).execute(&mut admin().await?).await?;
        Ok(())
    }

    same_for_all!();

    async fn raw_insert(connection: &mut PgConnection, rows: Vec<RawRow>) -> Result {
        match <[RawRow; 1]>::try_from(rows) {
            Ok([row]) => insert_one(connection, row).await,
            Err(rows) => insert_many(connection, rows).await,
        }
    }

    async fn raw_claim(connection: &mut PgConnection) -> Result<Vec<i64>> {
        let rows: Vec<(i64, String, String)> = sqlx::query_as(
            "WITH due AS MATERIALIZED (SELECT sequence FROM outbox_event \
                WHERE status IN (0, 2) AND status = 0 AND available_at <= now() \
                ORDER BY available_at, sequence LIMIT 500 FOR UPDATE SKIP LOCKED) \
             UPDATE outbox_event AS row SET available_at = now() + interval '30 seconds', \
                locked_by = 'baseline', locked_at = now(), claim_token = claim_token + 1 \
             FROM due WHERE row.sequence = due.sequence \
             RETURNING row.sequence, row.event_type, row.payload::text",
        )
        .fetch_all(connection)
        .await?;
        Ok(rows.into_iter().map(|(sequence, ..)| sequence).collect())
    }

    async fn raw_settle(
        connection: &mut PgConnection,
        sequences: Vec<i64>,
        completion: Completion,
    ) -> Result {
        let sql = match completion {
            Completion::Keep => {
                "UPDATE outbox_event SET status = 1, done_at = now(), locked_by = NULL \
                 WHERE sequence = ANY($1)"
            }
            Completion::Delete => "DELETE FROM outbox_event WHERE sequence = ANY($1)",
        };
        sqlx::query(sql).bind(sequences).execute(connection).await?;
        Ok(())
    }
}

async fn insert_one(connection: &mut PgConnection, row: RawRow) -> Result {
    sqlx::query(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, \
            available_at, created_at) VALUES ($1, $2, $3, $4, $5::json, now(), now())",
    )
    .bind(row.event_id)
    .bind(row.event_type)
    .bind(row.aggregate_type)
    .bind(row.aggregate_id)
    .bind(row.payload)
    .execute(connection)
    .await?;
    Ok(())
}

async fn insert_many(connection: &mut PgConnection, rows: Vec<RawRow>) -> Result {
    let (mut ids, mut types, mut aggregate_types) = (Vec::new(), Vec::new(), Vec::new());
    let (mut aggregates, mut payloads) = (Vec::new(), Vec::new());
    for row in rows {
        ids.push(row.event_id);
        types.push(row.event_type);
        aggregate_types.push(row.aggregate_type);
        aggregates.push(row.aggregate_id);
        payloads.push(row.payload);
    }
    sqlx::query(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, \
            available_at, created_at) SELECT id, type, aggregate_type, aggregate, payload::json, now(), now() \
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) \
            AS row(id, type, aggregate_type, aggregate, payload)",
    )
    .bind(ids)
    .bind(types)
    .bind(aggregate_types)
    .bind(aggregates)
    .bind(payloads)
    .execute(connection)
    .await?;
    Ok(())
}

/// Connects to the server itself, outside of the databases that are measured.
pub(crate) async fn admin() -> Result<PgConnection> {
    Ok(PgConnection::connect(&url(URL)?).await?)
}

/// Opens a transaction with a snapshot. Until it is dropped, no row version of the database is removed.
pub(crate) async fn old_snapshot(fresh: &Fresh<Postgres>) -> Result<PgConnection> {
    let mut session = PgConnection::connect_with(&fresh.pool.connect_options()).await?;
    sqlx::raw_sql(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sequence FROM outbox_event LIMIT 1",
    )
    .execute(&mut session)
    .await?;
    Ok(session)
}

/// Returns the URL of a database of the server.
pub(crate) fn database_url(name: &str) -> Result<String> {
    let url = url(URL)?;
    let (server, _) = url.rsplit_once('/').ok_or("the URL of PostgreSQL names no database")?;
    Ok(format!("{server}/{name}"))
}
