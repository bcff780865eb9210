use std::path::PathBuf;
use std::time::Duration;

use outbox::config::Completion;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection};

use super::{BenchDatabase, same_for_all};
use crate::Result;
use crate::event::RawRow;

impl BenchDatabase for Sqlite {
    const LABEL: &'static str = "sqlite";
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    // There is one writer at a time.
    const LOOPS: usize = 1;
    const FILL: &'static str = "WITH RECURSIVE n(i) AS (VALUES ({from}) UNION ALL SELECT i + 1 FROM n WHERE i < {to}) \
        INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, \
            available_at, created_at, done_at) \
        SELECT 'e' || i, 'Benched', '__GLOBAL__', CAST({aggregate} AS TEXT), '{payload}', {status}, t, t, \
            CASE WHEN {status} = 1 THEN t END \
        FROM (SELECT i, CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 3600000000 + i AS t FROM n)";
    const ANALYSE: &'static str = "ANALYZE";
    const FREEZE: Option<&'static str> = None;
    const FLUSH: Option<&'static str> = Some("PRAGMA wal_checkpoint(TRUNCATE)");
    const VERSION: &'static str = "SELECT sqlite_version()";

    async fn create(name: &str) -> Result<SqliteConnectOptions> {
        // Every commit is durable: `synchronous` is FULL by default.
        Ok(SqliteConnectOptions::new()
            .filename(file(name))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(20)))
    }

    async fn drop(name: &str) -> Result {
        for ending in ["", "-wal", "-shm"] {
            let mut path = file(name).into_os_string();
            path.push(ending);
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    same_for_all!();

    async fn raw_insert(connection: &mut SqliteConnection, rows: Vec<RawRow>) -> Result {
        let now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
        let places = vec![format!("(?, ?, ?, ?, ?, {now}, {now})"); rows.len()];
        let sql = format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, \
                available_at, created_at) VALUES {}",
            places.join(", ")
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for row in rows {
            query = query.bind(row.event_id).bind(row.event_type).bind(row.aggregate_type);
            query = query.bind(row.aggregate_id).bind(row.payload);
        }
        query.execute(connection).await?;
        Ok(())
    }

    async fn raw_claim(connection: &mut SqliteConnection) -> Result<Vec<i64>> {
        // The statement is a transaction of its own, and a writing one from its start.
        let rows: Vec<(i64, String, String)> = sqlx::query_as(
            "UPDATE outbox_event SET available_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 30000000, \
                locked_by = 'baseline', locked_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), \
                claim_token = claim_token + 1 \
             WHERE sequence IN (SELECT sequence FROM outbox_event \
                WHERE status = 0 AND status <> 1 AND status <> 3 \
                    AND available_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) \
                ORDER BY available_at, sequence LIMIT 500) \
             RETURNING sequence, event_type, payload",
        )
        .fetch_all(connection)
        .await?;
        Ok(rows.into_iter().map(|(sequence, ..)| sequence).collect())
    }

    async fn raw_settle(
        connection: &mut SqliteConnection,
        sequences: Vec<i64>,
        completion: Completion,
    ) -> Result {
        let sql = match completion {
            Completion::Keep => {
                "UPDATE outbox_event SET status = 1, locked_by = NULL, \
                    done_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) \
                 WHERE sequence IN (SELECT value FROM json_each(?))"
            }
            Completion::Delete => {
                "DELETE FROM outbox_event WHERE sequence IN (SELECT value FROM json_each(?))"
            }
        };
        sqlx::query(sql).bind(serde_json::to_string(&sequences)?).execute(connection).await?;
        Ok(())
    }
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("outbox_{name}.db"))
}
