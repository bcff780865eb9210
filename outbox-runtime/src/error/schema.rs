use std::time::Duration;

use thiserror::Error;

use super::Error as OutboxError;
use crate::table::Table;

/// Why a table cannot be used as it is.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The table is of a later version than this program knows.
    #[error(
        "table `{table}` has schema version {found}, and this program knows versions up to {known}; \
         deploy the newer program"
    )]
    Newer {
        /// The table.
        table: Table,
        /// Its version.
        found: i64,
        /// The latest that is known.
        known: i64,
    },

    /// The table is not there, or lacks something.
    #[error(
        "table `{table}` is missing or is not an outbox table; run `migrate`, or have this SQL run by \
         somebody who may:\n\n{sql}"
    )]
    Missing {
        /// The table.
        table: Table,
        /// What makes it.
        sql: String,
        /// What the database said.
        source: sqlx::Error,
    },

    /// A migration failed. On PostgreSQL and SQLite it has left nothing behind.
    #[error("migrating table `{table}` failed while {step}")]
    Migration {
        /// The table.
        table: Table,
        /// What was being done.
        step: String,
        /// What the database said.
        source: sqlx::Error,
    },

    /// Another session has held the lock of the migrations for longer than the pool waits for a connection
    /// (`acquire_timeout`).
    #[error(
        "table `{table}` was not migrated: {} held the migration lock for longer than {after:?}; wait until \
         the other migration has ended and start again, or end that session if it hangs, or give the pool a \
         longer `acquire_timeout`", holder(.session, .lock)
    )]
    Locked {
        /// The table.
        table: Table,
        /// How long it waited.
        after: Duration,
        /// The session that held it, if that was to be found out: a process id of PostgreSQL, a connection
        /// id of MySQL.
        session: Option<i64>,
        /// The lock's name: the key of an advisory lock on PostgreSQL, the name of `GET_LOCK` on MySQL. Empty
        /// if that was not to be found out.
        lock: String,
    },

    /// The table cannot be used as it is, and making it failed.
    // With its causes, since the SQL comes last.
    #[error(
        "table `{table}` cannot be used ({found}), and it could not be made: {}; mend that, or have this \
         SQL run by a user who may:\n\n{sql}", super::chain(.source)
    )]
    NotMade {
        /// The table.
        table: Table,
        /// What the database said about the table as it is.
        found: Box<sqlx::Error>,
        /// What makes it.
        sql: String,
        /// Why it could not be made.
        source: Box<OutboxError>,
    },
}

fn holder(session: &Option<i64>, lock: &str) -> String {
    match session {
        Some(session) => format!("session {session} (lock `{lock}`)"),
        None => "another session".to_owned(),
    }
}
