//! The lock under which one process at a time migrates.
//!
//! PostgreSQL has it until the transaction ends, MySQL until it is released or the session ends. On SQLite the
//! transaction itself keeps other writers out.

use std::time::Duration;

use sqlx::Pool;

use super::dialect::Dialect;
use super::statements::of_schema;
use super::{Backend, SchemaError, Table};

/// The statements of the lock. `{millis}` and `{seconds}` are how long to wait for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct MigrationLock {
    /// Gives 1 if the lock was taken and 0 if not, where it does not fail instead.
    take: &'static str,
    release: Option<&'static str>,
    /// The session that has it, and its name.
    holder: &'static str,
}

/// Names are server-wide, of 64 characters at most, and do not distinguish case; a database's name alone may
/// have as many.
macro_rules! mysql_name {
    () => {
        "CONCAT('outbox:migrate:', \
            LEFT(SHA2(LOWER(COALESCE(NULLIF('{bare_schema}', ''), DATABASE(), '')), 256), 40))"
    };
}

/// The lock of a database that has many writers.
pub(super) fn of(dialect: &Dialect) -> Option<MigrationLock> {
    match dialect.name {
        "PostgreSQL" => Some(MigrationLock {
            take: "SET LOCAL lock_timeout = {millis}; \
                SELECT pg_advisory_xact_lock(7738134957241561); \
                SET LOCAL lock_timeout = DEFAULT",
            release: None,
            holder: "SELECT pid::bigint, '7738134957241561' FROM pg_locks \
                WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
                AND (classid::bigint << 32 | objid::bigint) = 7738134957241561 AND database = \
                    (SELECT oid FROM pg_database WHERE datname = current_database())",
        }),
        "MySQL" => Some(MigrationLock {
            take: concat!("SELECT CAST(GET_LOCK(", mysql_name!(), ", {seconds}) AS SIGNED)"),
            release: Some(concat!("DO RELEASE_LOCK(", mysql_name!(), ")")),
            holder: concat!(
                "SELECT CAST(IS_USED_LOCK(",
                mysql_name!(),
                ") AS SIGNED), ",
                mysql_name!()
            ),
        }),
        _ => None,
    }
}

impl MigrationLock {
    /// Takes the lock; false if another session had it for all of `limit`.
    pub(super) async fn take<DB: Backend>(
        &self,
        connection: &mut DB::Connection,
        table: &Table,
        limit: Duration,
    ) -> sqlx::Result<bool> {
        // Seconds are the finest that every server understands, and 0 is no limit to PostgreSQL.
        let seconds = limit.as_millis().div_ceil(1_000).max(1);
        let template = self
            .take
            .replace("{millis}", &limit.as_millis().clamp(1, i32::MAX as u128).to_string())
            .replace("{seconds}", &seconds.to_string());
        let sql = of_schema(DB::DIALECT, table, &template);
        if self.release.is_none() {
            return match DB::run(connection, sql).await {
                Ok(()) => Ok(true),
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("55P03") => {
                    Ok(false)
                }
                Err(error) => Err(error),
            };
        }
        let rows = DB::fetch(connection, sql, vec![]).await?;
        match rows.first().map_or(Ok(None), |row| DB::int(row, 0))? {
            Some(taken) => Ok(taken == 1),
            // It ran out of memory, or the statement was killed.
            None => Err(sqlx::Error::Protocol("GET_LOCK has failed: its answer is NULL".into())),
        }
    }

    /// Gives the lock back, as far as that is still possible: it ends with its session.
    pub(super) async fn release<DB: Backend>(
        &self,
        connection: &mut DB::Connection,
        table: &Table,
    ) {
        if let Some(release) = self.release {
            let _ = DB::run(connection, of_schema(DB::DIALECT, table, release)).await;
        }
    }

    /// What to tell if it was not free, with the session that has it, if that can be found out.
    pub(super) async fn denied<DB: Backend>(
        &self,
        pool: &Pool<DB>,
        table: &Table,
        after: Duration,
    ) -> SchemaError {
        let found = async {
            let mut connection = pool.acquire().await?;
            let sql = of_schema(DB::DIALECT, table, self.holder);
            let rows = DB::fetch(&mut connection, sql, vec![]).await?;
            let Some(row) = rows.first() else { return Ok((None, None)) };
            Ok::<_, sqlx::Error>((DB::int(row, 0)?, DB::text(row, 1)?))
        };
        let (session, lock) = found.await.unwrap_or_default();
        let (table, lock) = (table.clone(), lock.unwrap_or_default());
        SchemaError::Locked { table, after, session, lock }
    }
}
