#[cfg(any(feature = "mysql", feature = "postgres"))]
use std::path::PathBuf;

use super::{Backend, Store};
use crate::Error;

/// Identifies a table, as far as this process can tell. A server that is reached under two names counts as two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableIdentity {
    database: Address,
    table: String,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The server and, on PostgreSQL, the database; or the file.
    pub(super) server: String,
    /// The schema of a table whose name has none.
    pub(super) schema: String,
}

/// Names a server by its socket, or by its host, and by its port.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) fn server(kind: &str, socket: Option<&PathBuf>, host: &str, port: u16) -> String {
    match socket {
        Some(socket) => format!("{kind}:{}:{port}", socket.display()),
        None => format!("{kind}:{host}:{port}"),
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns the identity of the table, which must exist.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn identity(&self) -> Result<TableIdentity, Error> {
        let database = DB::address(&self.pool.connect_options());
        let table = match &self.sql.table_id {
            Some(sql) => {
                let id = self.number("identifying the table", sql.clone(), vec![]).await?;
                id.unwrap_or_default().to_string()
            }
            None => {
                let schema = self.table.schema().unwrap_or(&database.schema);
                format!("{schema}.{}", self.table.name())
            }
        };
        Ok(TableIdentity { database, table })
    }
}
