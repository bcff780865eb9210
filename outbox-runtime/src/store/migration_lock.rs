//! The lock that lets one process migrate at a time.
//!
//! PostgreSQL holds it until the transaction ends, MySQL until it is released or the session ends. On SQLite the
//! transaction itself excludes other writers.

use std::time::Duration;

use sqlx::Pool;

use super::statements::of_schema;
use super::{Backend, DatabaseErrorKind, SchemaError, Table};

/// The statements of the lock. `{millis}` and `{seconds}` are how long to wait for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct MigrationLock {
    /// Takes the lock. With a `release`, it returns 1 if the lock was taken and 0 if not; without, it fails if
    /// the lock is not available in time.
    pub(super) take: &'static str,
    /// Releases the lock, where the end of the transaction does not.
    pub(super) release: Option<&'static str>,
    /// Returns the session that holds the lock, and the lock's name.
    pub(super) holder: &'static str,
}

impl MigrationLock {
    /// Takes the lock. Returns `false` if another session held it for all of `limit`.
    pub(super) async fn take<DB: Backend>(
        &self,
        connection: &mut DB::Connection,
        table: &Table,
        limit: Duration,
    ) -> sqlx::Result<bool> {
        // Not every server accepts fractions of a second, and for PostgreSQL 0 means no limit.
        let seconds = limit.as_millis().div_ceil(1_000).max(1);
        let template = self
            .take
            .replace("{millis}", &limit.as_millis().clamp(1, i32::MAX as u128).to_string())
            .replace("{seconds}", &seconds.to_string());
        let sql = of_schema(DB::DIALECT, table, &template);
        if self.release.is_none() {
            return match DB::run(connection, sql).await {
                Ok(()) => Ok(true),
                Err(error) => match DatabaseErrorKind::from_error(&error) {
                    DatabaseErrorKind::LockTimeout => Ok(false),
                    _ => Err(error),
                },
            };
        }
        let rows = DB::fetch(connection, sql, vec![]).await?;
        match rows.first().map_or(Ok(None), |row| DB::int(row, 0))? {
            Some(taken) => Ok(taken == 1),
            // It ran out of memory, or the statement was killed.
            None => Err(sqlx::Error::Protocol("GET_LOCK failed: it returned NULL".into())),
        }
    }

    /// Releases the lock. An error does not matter: the lock ends with its session.
    pub(super) async fn release<DB: Backend>(
        &self,
        connection: &mut DB::Connection,
        table: &Table,
    ) {
        if let Some(release) = self.release {
            let _ = DB::run(connection, of_schema(DB::DIALECT, table, release)).await;
        }
    }

    /// Returns the error for a lock that was not available, with the session that holds it if that is known.
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
