//! What a driver's error means to somebody who has to do something about it.

use std::io::ErrorKind;

use super::SchemaError;
use crate::Error;

/// What is wrong with the database, coarsely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DatabaseErrorKind {
    /// Nobody answers, or the connection was lost.
    Unreachable,
    /// The user or the password is wrong.
    Login,
    /// There is no such database, or no such file.
    NoDatabase,
    /// There is no such table.
    NoTable,
    /// The table lacks a column.
    NoColumn,
    /// The user lacks a right.
    Rights,
    /// The server or the URL demands TLS and there is none, or a certificate was refused.
    Tls,
    /// Nothing can be changed here.
    ReadOnly,
    /// Anything else.
    Other,
}

impl DatabaseErrorKind {
    /// What a driver's error means.
    pub fn from_error(error: &sqlx::Error) -> Self {
        match error {
            // A certificate that is not trusted, or a host's name that is not in it.
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
                Self::from_code(&error.code().unwrap_or_default(), error.message())
            }
            _ => Self::Other,
        }
    }

    /// SQLSTATE of PostgreSQL and MySQL, or SQLite's own code. MySQL has one SQLSTATE for many things.
    fn from_code(code: &str, message: &str) -> Self {
        match code {
            "57P01" | "57P02" | "57P03" | "08S01" | "70100" => Self::Unreachable,
            "28000" if message.contains("no encryption") || message.contains("SSL off") => {
                Self::Tls
            }
            "HY000" if message.contains("insecure transport") => Self::Tls,
            "28P01" | "28000" => Self::Login,
            "3D000" | "14" => Self::NoDatabase,
            "42000" if message.contains("Unknown database") => Self::NoDatabase,
            "42P01" | "3F000" | "42S02" => Self::NoTable,
            "1" if message.contains("no such table") => Self::NoTable,
            "42703" | "42S22" => Self::NoColumn,
            "1" if message.contains("no such column") => Self::NoColumn,
            "42501" | "23" => Self::Rights,
            "42000" if message.contains("denied") => Self::Rights,
            "25006" | "8" => Self::ReadOnly,
            "HY000" if message.contains("read-only") => Self::ReadOnly,
            _ => Self::Other,
        }
    }
}

impl Error {
    /// Returns whether the database has answered, as opposed to being silent. A server that is being shut down,
    /// or a session that was ended, may have committed before it said so.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Database { source: sqlx::Error::Database(source), .. } => {
                let code = source.code().unwrap_or_default();
                !["08", "57", "70"].iter().any(|class| code.starts_with(class))
            }
            Self::Database { .. } | Self::TimedOut { .. } => false,
            _ => true,
        }
    }

    /// Returns whether the database objects to a value, not to the statement. Some servers have no better code
    /// than "general error" for a character that they cannot store.
    pub(crate) fn is_about_data(&self) -> bool {
        match self {
            Self::Database { source: sqlx::Error::Database(source), .. } => {
                source.code().is_some_and(|code| code.starts_with("22") || code == "HY000")
            }
            _ => false,
        }
    }

    /// What is wrong with the database, if it is the database.
    pub fn database_error_kind(&self) -> DatabaseErrorKind {
        match self {
            Self::Database { source, .. } => DatabaseErrorKind::from_error(source),
            Self::Schema(
                SchemaError::Missing { source, .. } | SchemaError::Migration { source, .. },
            ) => DatabaseErrorKind::from_error(source),
            Self::Schema(SchemaError::NotMade { source, .. }) => source.database_error_kind(),
            Self::Interrupted { source, .. } => source.database_error_kind(),
            Self::TimedOut { .. } => DatabaseErrorKind::Unreachable,
            _ => DatabaseErrorKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_code_may_mean_many_things() {
        let of = |message| DatabaseErrorKind::from_code("42000", message);
        assert_eq!(
            of("SELECT command denied to user 'a'@'b' for table `c`"),
            DatabaseErrorKind::Rights
        );
        assert_eq!(of("Unknown database 'shop'"), DatabaseErrorKind::NoDatabase);
        assert_eq!(of("You have an error in your SQL syntax"), DatabaseErrorKind::Other);
        let of_sqlite = |message| DatabaseErrorKind::from_code("1", message);
        assert_eq!(of_sqlite("no such table: outbox_event"), DatabaseErrorKind::NoTable);
        assert_eq!(of_sqlite("no such column: takeovers"), DatabaseErrorKind::NoColumn);
    }

    #[test]
    fn a_server_that_wants_tls_is_no_wrong_password() {
        let message =
            "no pg_hba.conf entry for host \"::1\", user \"a\", database \"b\", no encryption";
        assert_eq!(DatabaseErrorKind::from_code("28000", message), DatabaseErrorKind::Tls);
        assert_eq!(
            DatabaseErrorKind::from_code("28000", "role \"a\" does not exist"),
            DatabaseErrorKind::Login
        );
    }
}
