//! The meaning of a driver's error. Each database classifies its own codes, in the file of its dialect.

use std::io::ErrorKind;

use sqlx::error::DatabaseError;

use super::SchemaError;
use crate::Error;

/// The kind of a database error, the same for SQLite, PostgreSQL, MySQL and MariaDB.
///
/// Each driver has codes of its own; this is what they mean for a program that wants to react.
/// [`Error::database_error_kind`] returns it for an error of the outbox, and [`from_error`](Self::from_error) for one
/// of sqlx.
///
/// ```
/// use outbox::error::DatabaseErrorKind;
///
/// /// Whether the same transaction can succeed if it is run again.
/// fn is_transient(error: &outbox::Error) -> bool {
///     use DatabaseErrorKind::{Contention, Exhausted, LockTimeout, Unreachable};
///     matches!(error.database_error_kind(), Contention | LockTimeout | Unreachable | Exhausted)
/// }
///
/// let timed_out = outbox::Error::from(sqlx::Error::PoolTimedOut);
/// assert_eq!(timed_out.database_error_kind(), DatabaseErrorKind::Unreachable);
/// assert!(is_transient(&timed_out));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DatabaseErrorKind {
    /// The server does not answer, is shutting down, or has closed the connection. A pool without a free connection
    /// counts too.
    Unreachable,
    /// The user or the password is wrong.
    Login,
    /// The database, or the file, does not exist. Check the URL; for SQLite, add `?mode=rwc` to create the file.
    NoDatabase,
    /// The table does not exist. Run [`migrate`](super::migrate), or check the table name and the schema.
    NoTable,
    /// The table lacks a column: it is older than this program, or no outbox table.
    NoColumn,
    /// The user lacks a privilege: an outbox needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on its table.
    Rights,
    /// The server or the URL requires TLS and the connection has none, or a certificate was refused.
    Tls,
    /// The server, the file or the transaction is read-only. The pool may be connected to a replica.
    ReadOnly,
    /// A deadlock, or a conflict with another transaction; running the transaction again can succeed.
    Contention,
    /// A lock was not available in time; running the transaction again can succeed.
    LockTimeout,
    /// The server cancelled the statement, usually because it took longer than its time limit.
    Cancelled,
    /// An earlier error has aborted the transaction, and every further statement fails until it is rolled back.
    Aborted,
    /// The statement needs a transaction, and the connection has none.
    NoTransaction,
    /// The statement is not permitted in a transaction.
    InTransaction,
    /// The database refuses a value. On MySQL also an error for which the server has no code of its own.
    Data,
    /// The server is out of connections, memory or disk space.
    Exhausted,
    /// Any other error, and any error that is not of the database.
    Other,
}

impl DatabaseErrorKind {
    /// Classifies an error of sqlx. The error knows its driver, so one function serves all databases.
    pub fn from_error(error: &sqlx::Error) -> Self {
        match error {
            // A certificate that is not trusted, or that is not for the host.
            sqlx::Error::Io(error)
                if error.kind() == ErrorKind::InvalidData
                    && error.to_string().contains("certificate") =>
            {
                Self::Tls
            }
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Unreachable,
            sqlx::Error::Tls(_) => Self::Tls,
            sqlx::Error::Database(error) => {
                // An error knows which driver it is of, so that no type parameter is needed.
                CLASSIFIERS.iter().find_map(|classify| classify(&**error)).unwrap_or(Self::Other)
            }
            _ => Self::Other,
        }
    }

    /// Returns whether another transaction was in the way, so that a retry can succeed.
    pub(crate) fn is_contention(self) -> bool {
        matches!(self, Self::Contention | Self::LockTimeout)
    }
}

/// Classifies an error of one driver; returns `None` for an error of another.
type Classifier = fn(&dyn DatabaseError) -> Option<DatabaseErrorKind>;

const CLASSIFIERS: &[Classifier] = &[
    #[cfg(feature = "postgres")]
    super::postgres::classify,
    #[cfg(feature = "mysql")]
    super::mysql::classify,
    #[cfg(feature = "sqlite")]
    super::sqlite::classify,
];

impl Error {
    /// Returns whether the database has answered. A server that is shutting down, and one that has ended the
    /// session or the statement, may have committed before.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Database { source: source @ sqlx::Error::Database(_), .. } => !matches!(
                DatabaseErrorKind::from_error(source),
                DatabaseErrorKind::Unreachable | DatabaseErrorKind::Cancelled
            ),
            Self::Database { .. } | Self::TimedOut { .. } => false,
            _ => true,
        }
    }

    /// Returns whether the database refuses a value, and not the statement.
    pub(crate) fn is_about_data(&self) -> bool {
        match self {
            Self::Database { source, .. } => {
                DatabaseErrorKind::from_error(source) == DatabaseErrorKind::Data
            }
            _ => false,
        }
    }

    /// Returns whether a statement took too long, by this side's clock or by the server's.
    pub(crate) fn is_time_out(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::Database { source, .. } => {
                DatabaseErrorKind::from_error(source) == DatabaseErrorKind::Cancelled
            }
            _ => false,
        }
    }

    /// Returns the kind of the database error behind this one, or [`Other`](DatabaseErrorKind::Other) if there is none.
    ///
    /// It looks through [`Interrupted`](Self::Interrupted) and [`Schema`](Self::Schema); a [`TimedOut`](Self::TimedOut)
    /// is [`Unreachable`](DatabaseErrorKind::Unreachable).
    pub fn database_error_kind(&self) -> DatabaseErrorKind {
        match self {
            Self::Database { source, .. } => DatabaseErrorKind::from_error(source),
            Self::Schema(
                SchemaError::Missing { source, .. } | SchemaError::Migration { source, .. },
            ) => DatabaseErrorKind::from_error(source),
            Self::Schema(
                SchemaError::NotMade { source, .. } | SchemaError::NotMigrated { source, .. },
            ) => source.database_error_kind(),
            Self::Schema(SchemaError::NotPermitted { .. }) => DatabaseErrorKind::Rights,
            Self::Schema(SchemaError::NotAnOutbox { .. }) => DatabaseErrorKind::NoColumn,
            Self::Interrupted { source, .. } => source.database_error_kind(),
            Self::TimedOut { .. } => DatabaseErrorKind::Unreachable,
            _ => DatabaseErrorKind::Other,
        }
    }
}
