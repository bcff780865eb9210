use std::time::Duration;

use thiserror::Error;

use super::Error as OutboxError;
use crate::table::Table;

/// The reason why a table cannot be used as it is.
///
/// [`Admin::verify`](crate::Admin::verify) and [`migrate`](crate::store::migrate) return it as
/// [`Error::Schema`](crate::Error::Schema), and a failed start contains it as
/// [`StartFault::Schema`](crate::StartFault::Schema). Where SQL can help, the error contains the statements, for a user
/// with more privileges than the application has.
///
/// ```no_run
/// use outbox::Error;
/// use outbox::admin::{Admin, Table};
/// use outbox::error::SchemaError;
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// match Admin::new(pool, Table::default()).verify().await {
///     Err(Error::Schema(SchemaError::Missing { sql, .. } | SchemaError::Older { sql, .. })) => println!("{sql}"),
///     verified => verified?,
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The table has a later version than this program knows, and does not permit programs like this one.
    ///
    /// It happens when an old program is started after a migration that is not compatible with it. Deploy the newer
    /// program.
    #[error(
        "table `{table}` has schema version {found}, which requires a program that knows version {} or later, \
         and this program knows versions up to {known}; deploy the newer program", .min_code.unwrap_or(*found)
    )]
    Newer {
        /// The table that was examined.
        table: Table,
        /// The schema version of the table.
        found: i64,
        /// The latest schema version that this program knows.
        known: i64,
        /// The oldest program that the table permits, by the latest version that it knows; `None` if it is not
        /// recorded.
        min_code: Option<i64>,
    },

    /// The table lacks migrations that this program needs. [`migrate`](crate::store::migrate) runs them, and so does
    /// [`Builder::start`](crate::Builder::start).
    #[error(
        "table `{table}` {}, and this program needs version {known}; run `migrate`, or have a user with the required \
         privileges run this SQL:\n\n{sql}", version(*.found)
    )]
    Older {
        /// The table that was examined.
        table: Table,
        /// The schema version of the table; 0 for a table of the original Java framework.
        found: i64,
        /// The schema version that this program needs.
        known: i64,
        /// The statements that the table needs, to be run manually.
        sql: String,
    },

    /// There is a table of this name with other columns than those of an outbox table. It is never changed.
    ///
    /// Give the outbox another name with the option [`table`](crate::Config::table), or check the database of the pool.
    #[error(
        "table `{table}` is not an outbox table, and is left as it is: it lacks the columns `{}`; choose another name \
         with the option `table`, or restore these columns", .missing.join("`, `")
    )]
    NotAnOutbox {
        /// The table that was examined.
        table: Table,
        /// The columns of an outbox table that it lacks.
        missing: Vec<String>,
    },

    /// The table does not exist.
    ///
    /// Check the name of the table and the database of the pool, then create it with
    /// [`migrate`](crate::store::migrate).
    #[error(
        "table `{table}` is missing; run `migrate`, or have a user with the required privileges run this \
         SQL:\n\n{sql}"
    )]
    Missing {
        /// The table that was looked for.
        table: Table,
        /// The SQL that creates the table, to be run manually.
        sql: String,
        /// The error of the database.
        source: sqlx::Error,
    },

    /// The user of this process lacks privileges on the table that the process needs in its mode. Have the owner of the
    /// table run the statements, or turn off what needs them: the message says which privilege is for what.
    #[error(
        "this user lacks privileges on table `{table}`{} that this process needs: {}; have its owner run this \
         SQL:\n\n{sql}",
        if *.is_concealed { CONCEALED } else { "" }, .missing.join(", ")
    )]
    NotPermitted {
        /// The table that the process works on.
        table: Table,
        /// The privileges that it lacks.
        missing: Vec<String>,
        /// Whether the table may not exist: MySQL does not tell a user who may not read it.
        is_concealed: bool,
        /// The statements that grant the missing privileges, for the owner of the table.
        sql: String,
        /// The error of the database; `None` if it was asked for the privileges.
        source: Option<Box<sqlx::Error>>,
    },

    /// The table lacks what an ordered outbox needs, and it could not be added.
    /// [`migrate_ordered`](crate::store::migrate_ordered) adds it.
    #[error(
        "table `{table}` cannot be used in order, because it lacks an index; run `migrate_ordered`, or have a user \
         with the required privileges run this SQL:\n\n{sql}"
    )]
    NotOrdered {
        /// The table that was examined.
        table: Table,
        /// The statements that the table needs, to be run manually.
        sql: String,
        /// Why it could not be added, if that was tried.
        source: Option<Box<OutboxError>>,
    },

    /// A migration failed. On PostgreSQL and SQLite it has changed nothing; on MySQL, where each statement is committed
    /// by itself, the next migration completes it. Remove the cause that the source names, and migrate again.
    #[error("migrating table `{table}` failed while {step}")]
    Migration {
        /// The table that was to be migrated.
        table: Table,
        /// The step that failed, worded to follow "while".
        step: String,
        /// The error of the database.
        source: sqlx::Error,
    },

    /// Another session has held the migration lock for longer than the pool waits for a connection (`acquire_timeout`).
    ///
    /// Usually another process is migrating a large table: wait and start again. If that session hangs, end it.
    #[error(
        "table `{table}` was not migrated: {} held the migration lock for longer than {after:?}; wait until \
         the other migration has ended and start again, or end that session if it hangs, or give the pool a \
         longer `acquire_timeout`", holder(.session, .lock)
    )]
    Locked {
        /// The table that was to be migrated.
        table: Table,
        /// How long this session has waited for the lock.
        after: Duration,
        /// The session that held the lock, if known: a process id of PostgreSQL, a connection id of MySQL.
        session: Option<i64>,
        /// The lock's name: the key of an advisory lock on PostgreSQL, the name of `GET_LOCK` on MySQL. Empty
        /// if it is not known.
        lock: String,
    },

    /// The table cannot be used as it is, and creating it failed, usually because the user may not create tables. Have
    /// a user with the required privileges run the SQL.
    // With its causes, since the SQL comes last.
    #[error(
        "table `{table}` cannot be used ({found}), and it could not be created: {}; fix this, or have a user with \
         the required privileges run this SQL:\n\n{sql}", super::chain(.source)
    )]
    NotMade {
        /// The table that was to be created.
        table: Table,
        /// The error of the database about the table as it is.
        found: Box<sqlx::Error>,
        /// The SQL that creates the table, to be run manually.
        sql: String,
        /// The reason why it could not be created.
        source: Box<OutboxError>,
    },

    /// The table lacks migrations that this program needs, and running them failed, usually because the user may not
    /// alter tables. Have a user with the required privileges run the SQL.
    // With its causes, since the SQL comes last.
    #[error(
        "table `{table}` {}, this program needs version {known}, and the table could not be migrated: {}; fix this, or \
         have a user with the required privileges run this SQL:\n\n{sql}", version(*.found), super::chain(.source)
    )]
    NotMigrated {
        /// The table that was to be migrated.
        table: Table,
        /// The schema version of the table; 0 for a table of the original Java framework.
        found: i64,
        /// The schema version that this program needs.
        known: i64,
        /// The statements that the table needs, to be run manually.
        sql: String,
        /// The reason why it could not be migrated.
        source: Box<OutboxError>,
    },
}

const CONCEALED: &str = " (if it exists, which the server does not tell such a user)";

fn version(found: i64) -> String {
    match found {
        0 => "is a table of the original Java framework".to_owned(),
        version => format!("has schema version {version}"),
    }
}

fn holder(session: &Option<i64>, lock: &str) -> String {
    match session {
        Some(session) => format!("session {session} (lock `{lock}`)"),
        None => "another session".to_owned(),
    }
}
