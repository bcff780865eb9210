//! The meaning of a driver's error. Each database classifies its own codes, in the file of its dialect.

use std::io::ErrorKind;

use sqlx::error::DatabaseError;

use super::SchemaError;
use crate::Error;

/// The kind of a database error, the same for every database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DatabaseErrorKind {
    /// The server does not answer, is shutting down, or has closed the connection.
    Unreachable,
    /// The user or the password is wrong.
    Login,
    /// The database, or the file, does not exist.
    NoDatabase,
    /// The table does not exist.
    NoTable,
    /// The table lacks a column.
    NoColumn,
    /// The user lacks a privilege.
    Rights,
    /// The server or the URL requires TLS and the connection has none, or a certificate was refused.
    Tls,
    /// The server, the file or the transaction is read-only.
    ReadOnly,
    /// A deadlock, or a conflict with another transaction; a retry can succeed.
    Contention,
    /// A lock was not available in time; a retry can succeed.
    LockTimeout,
    /// The server cancelled the statement, usually because it took longer than its time limit.
    Cancelled,
    /// An earlier error has aborted the transaction.
    Aborted,
    /// The statement needs a transaction, and the connection has none.
    NoTransaction,
    /// The statement is not permitted in a transaction.
    InTransaction,
    /// The database refuses a value. On MySQL also an error for which the server has no code of its own.
    Data,
    /// The server is out of connections, memory or disk space.
    Exhausted,
    /// Any other error.
    Other,
}

impl DatabaseErrorKind {
    /// Classifies a driver's error.
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

    /// Returns the kind of the database error, [`Other`](DatabaseErrorKind::Other) if it is none.
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
            Self::Interrupted { source, .. } => source.database_error_kind(),
            Self::TimedOut { .. } => DatabaseErrorKind::Unreachable,
            _ => DatabaseErrorKind::Other,
        }
    }
}
