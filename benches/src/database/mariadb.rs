use outbox::config::Completion;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, Connection, MySql, MySqlConnection};

use super::{BenchDatabase, same_for_all, url};
use crate::Result;
use crate::event::RawRow;

const URL: &str = "OUTBOX_TEST_MYSQL_URL";

impl BenchDatabase for MySql {
    const LABEL: &'static str = "mariadb";
    const BEGIN: &'static str = "START TRANSACTION";
    const LOOPS: usize = 2;
    const FILL: &'static str = "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, \
            payload, status, available_at, created_at, done_at) \
        SELECT CONCAT('e', i), 'Benched', '__GLOBAL__', {aggregate}, '{payload}', {status}, t, t, \
            IF({status} = 1, t, NULL) \
        FROM (SELECT seq AS i, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR + INTERVAL seq MICROSECOND AS t \
            FROM seq_{from}_to_{to}) AS filled";
    const ANALYSE: &'static str = "ANALYZE TABLE outbox_event";
    const FREEZE: Option<&'static str> = Some("ALTER TABLE outbox_event STATS_AUTO_RECALC = 0");
    const FLUSH: Option<&'static str> = None;
    const VERSION: &'static str = "SELECT VERSION()";

    async fn create(name: &str) -> Result<MySqlConnectOptions> {
        let sql = format!("CREATE DATABASE {name}");
        sqlx::query(AssertSqlSafe(sql)).execute(&mut admin().await?).await?;
        Ok(url(URL)?.parse::<MySqlConnectOptions>()?.database(name))
    }

    async fn drop(name: &str) -> Result {
        let sql = format!("DROP DATABASE {name}");
        sqlx::query(AssertSqlSafe(sql)).execute(&mut admin().await?).await?;
        Ok(())
    }

    same_for_all!();

    async fn raw_insert(connection: &mut MySqlConnection, rows: Vec<RawRow>) -> Result {
        let places = vec!["(?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"; rows.len()];
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

    async fn raw_claim(connection: &mut MySqlConnection) -> Result<Vec<i64>> {
        sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION")
            .execute(&mut *connection)
            .await?;
        let rows: Vec<(i64, String, String)> = sqlx::query_as(
            "SELECT sequence, event_type, payload FROM outbox_event \
             WHERE status = 0 AND available_at <= UTC_TIMESTAMP(6) \
             ORDER BY available_at, sequence LIMIT 500 FOR UPDATE SKIP LOCKED",
        )
        .fetch_all(&mut *connection)
        .await?;
        let sequences: Vec<i64> = rows.into_iter().map(|(sequence, ..)| sequence).collect();
        if !sequences.is_empty() {
            let take = "UPDATE outbox_event SET available_at = UTC_TIMESTAMP(6) + INTERVAL 30 SECOND, \
                locked_by = 'baseline', locked_at = UTC_TIMESTAMP(6), claim_token = claim_token + 1";
            change(connection, take, &sequences).await?;
        }
        sqlx::raw_sql("COMMIT").execute(connection).await?;
        Ok(sequences)
    }

    async fn raw_settle(
        connection: &mut MySqlConnection,
        sequences: Vec<i64>,
        completion: Completion,
    ) -> Result {
        let sql = match completion {
            Completion::Keep => {
                "UPDATE outbox_event SET status = 1, done_at = UTC_TIMESTAMP(6), locked_by = NULL"
            }
            Completion::Delete => "DELETE FROM outbox_event",
        };
        change(connection, sql, &sequences).await
    }
}

/// Runs a statement on rows. There is at most one prepared statement for each number of rows.
async fn change(connection: &mut MySqlConnection, sql: &str, sequences: &[i64]) -> Result {
    let places = vec!["?"; sequences.len()].join(", ");
    let mut query = sqlx::query(AssertSqlSafe(format!("{sql} WHERE sequence IN ({places})")));
    for sequence in sequences {
        query = query.bind(*sequence);
    }
    query.execute(connection).await?;
    Ok(())
}

async fn admin() -> Result<MySqlConnection> {
    Ok(MySqlConnection::connect(&url(URL)?).await?)
}
