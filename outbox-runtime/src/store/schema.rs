//! Creating, verifying and migrating the table.
//!
//! Migrations are embedded, numbered and only go forward. A table `outbox_schema` beside the outbox's own records the
//! version of each outbox, and the oldest program that may use it. `plan` finds the statements that a table needs.

mod migrate;
pub(super) mod order;
pub(super) mod origin;
pub(super) mod plan;
mod sql;

use std::collections::HashSet;

use super::dialect::Dialect;
use super::rights::Operation;
use super::statements::of_schema;
use super::{Backend, DatabaseErrorKind, Store, Table, columns, relay_lock, with_connection};
use crate::Error;
use crate::error::SchemaError;
pub use migrate::{migrate, migrate_ordered};
use plan::Found;
pub(super) use plan::Migrations;
pub use sql::{adoption_sql, migration_sql, migration_sql_from, migration_sql_ordered};

/// How a table relates to the schema that this program knows, from [`Admin::schema_state`](crate::Admin::schema_state).
///
/// [`Current`](Self::Current), [`Compatible`](Self::Compatible), [`Unversioned`](Self::Unversioned) and
/// [`Hidden`](Self::Hidden) can be used as they are; [`Older`](Self::Older) and [`Missing`](Self::Missing) after
/// [`migrate`](fn@migrate); [`Forbidden`](Self::Forbidden) with more privileges; [`Newer`](Self::Newer) only by a later program.
#[derive(Debug)]
#[non_exhaustive]
pub enum SchemaState {
    /// The table does not exist, or is not an outbox table: it lacks a column of the first version.
    Missing {
        /// The error of the database, which tells these cases apart.
        source: sqlx::Error,
    },
    /// This user may not read the table, which on MySQL may be missing as well. Grant the privileges on it.
    Forbidden {
        /// The error of the database.
        source: sqlx::Error,
    },
    /// The table has every column, and no recorded version: it was created manually. It can be used.
    Unversioned,
    /// The table has every column, and this user may not read its version. It can be used.
    Hidden {
        /// The error of the database about the table `outbox_schema`.
        source: sqlx::Error,
    },
    /// The table is of an earlier version, and there are migrations to run.
    Older {
        /// The version of the table: as recorded, or else by its columns and indexes. 0 for a table of the original
        /// Java framework, which the statements adopt.
        found: i64,
        /// The latest version that this program knows, and needs.
        known: i64,
        /// The statements that lead to the latest version, to be run manually.
        sql: String,
    },
    /// The table has the latest version that this program knows.
    Current {
        /// The version of the table and of this program.
        version: i64,
    },
    /// The table has a later version than this program knows, and permits programs like this one: the old program of a
    /// rolling deploy, for example.
    Compatible {
        /// The version of the table.
        found: i64,
        /// The latest version that this program knows.
        known: i64,
        /// The oldest program that the table permits, by the latest version that it knows.
        min_code: i64,
    },
    /// The table has a later version than this program knows, and cannot be used by it. Deploy the newer program.
    Newer {
        /// The version of the table.
        found: i64,
        /// The latest version that this program knows.
        known: i64,
        /// The oldest program that the table permits, by the latest version that it knows; `None` if it is not
        /// recorded.
        min_code: Option<i64>,
    },
}

const VERSION_OF: &str = "SELECT {int:version} FROM {versions} WHERE table_name = '{bare}'";
const MIN_CODE_OF: &str = "SELECT {int:min_code} FROM {versions} WHERE table_name = '{bare}'";

/// The tables that belong to all outboxes of a schema, each with its placeholder: the registered subscriptions, and the
/// running nodes. Their first column is the name of the outbox table.
const BESIDE: [(&str, &str); 2] =
    [("{subscriptions}", "outbox_subscription"), ("{nodes}", "outbox_node")];

/// Fails if one of them is missing, or may not be read; returns no rows.
const READ_BESIDE: &str = "SELECT 1 FROM {subscriptions}, {nodes} WHERE 1 = 0";

/// Fails if a column is missing, or may not be read; returns no rows.
pub(super) fn select_nothing(columns: &[&str]) -> String {
    format!("SELECT {} FROM {{table}} WHERE 1 = 0", columns.join(", "))
}

/// Fills in a template of the schema.
pub(super) fn render(dialect: &Dialect, table: &Table, template: &str) -> String {
    let beside = |name: &str| table.beside(name).quoted(dialect.quote);
    let qualifier =
        table.schema().map_or_else(String::new, |schema| format!("{0}{schema}{0}.", dialect.quote));
    let mut sql = template
        .replace("{versions}", &beside("outbox_schema"))
        .replace("{old_index}", &beside(origin::OLD_INDEX))
        .replace("{relay}", &beside(relay_lock::TABLE))
        .replace("{schema}", &qualifier)
        .replace("{name}", &format!("{0}{1}{0}", dialect.quote, table.name()));
    for (placeholder, name) in BESIDE {
        sql = sql.replace(placeholder, &beside(name));
    }
    if dialect.index_in_schema
        && let Some(schema) = table.schema()
    {
        sql = sql.replace("INDEX {index:", &format!("INDEX \"{schema}\".{{index:"));
    }
    dialect.render(&sql, table)
}

/// Reads what the catalog shows of the table and of the table of the versions.
async fn inspect<DB: Backend>(
    connection: &mut DB::Connection,
    table: &Table,
) -> sqlx::Result<Found> {
    let dialect = DB::DIALECT;
    let versions = table.beside("outbox_schema");
    let versions = names::<DB>(connection, &versions, dialect.columns).await?;
    let conceals_tables = dialect.rights.as_ref().is_some_and(|rights| rights.conceals_tables);
    let (mut beside, mut concealed) = (HashSet::new(), HashSet::new());
    for (_, name) in BESIDE {
        let other = table.beside(name);
        if !names::<DB>(connection, &other, dialect.columns).await?.is_empty() {
            beside.insert(name);
        } else if conceals_tables && is_concealed::<DB>(connection, &other).await? {
            concealed.insert(name);
        }
    }
    Ok(Found {
        version: None,
        no_versions: versions.is_empty(),
        no_min_code: !versions.is_empty() && !versions.contains("min_code"),
        no_record: !versions.contains("ordered"),
        columns: names::<DB>(connection, table, dialect.columns).await?,
        indexes: names::<DB>(connection, table, dialect.indexes).await?,
        beside,
        concealed,
    })
}

/// Returns whether the database does not tell this user whether a table exists.
async fn is_concealed<DB: Backend>(
    connection: &mut DB::Connection,
    table: &Table,
) -> sqlx::Result<bool> {
    match number::<DB>(connection, table, "SELECT 1 FROM {table} WHERE 1 = 0").await {
        Ok(_) => Ok(false),
        Err(error) => match DatabaseErrorKind::from_error(&error) {
            DatabaseErrorKind::Rights => Ok(true),
            DatabaseErrorKind::NoTable => Ok(false),
            _ => Err(error),
        },
    }
}

fn is_column_missing(error: &sqlx::Error) -> bool {
    DatabaseErrorKind::from_error(error) == DatabaseErrorKind::NoColumn
}

async fn names<DB: Backend>(
    connection: &mut DB::Connection,
    table: &Table,
    template: &str,
) -> sqlx::Result<HashSet<String>> {
    let sql = of_schema(DB::DIALECT, table, template);
    let rows = DB::fetch(connection, sql, vec![]).await?;
    Ok(rows.iter().filter_map(|row| DB::text(row, 0).ok().flatten()).collect())
}

async fn number<DB: Backend>(
    connection: &mut DB::Connection,
    table: &Table,
    template: &str,
) -> sqlx::Result<Option<i64>> {
    let rows = DB::fetch(connection, of_schema(DB::DIALECT, table, template), vec![]).await?;
    rows.first().map_or(Ok(None), |row| DB::int(row, 0))
}

impl<DB: Backend> Store<DB> {
    /// Checks that the table can be used by this program. Needs no privilege to change it.
    ///
    /// # Errors
    /// If the table is missing or older, with the SQL that it needs; if it is newer and cannot be used; or if the
    /// database fails.
    pub async fn verify(&self) -> Result<(), Error> {
        let table = self.table.clone();
        Err(Error::Schema(match self.schema_state().await? {
            SchemaState::Missing { source } if is_column_missing(&source) => {
                let found = self.inspect().await.map_err(Error::database("checking the table"))?;
                let missing = DB::DIALECT.migrations.lacking(&self.table, &found);
                SchemaError::NotAnOutbox { table, missing }
            }
            SchemaState::Missing { source } => {
                let sql = migration_sql::<DB>(&self.table);
                SchemaError::Missing { table, sql, source }
            }
            SchemaState::Forbidden { source } => {
                self.may_not_read(&[Operation::Read], source).await
            }
            SchemaState::Older { found, known, sql } => {
                SchemaError::Older { table, found, known, sql }
            }
            SchemaState::Newer { found, known, min_code } => {
                SchemaError::Newer { table, found, known, min_code }
            }
            SchemaState::Unversioned
            | SchemaState::Hidden { .. }
            | SchemaState::Current { .. }
            | SchemaState::Compatible { .. } => return Ok(()),
        }))
    }

    /// Compares the table with the migrations that this program knows. Needs no privilege to change it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn schema_state(&self) -> Result<SchemaState, Error> {
        let failed = || Error::database("checking the table");
        let migrations = &DB::DIALECT.migrations;
        let known = migrations.latest();
        let is_complete = match self.has_columns(columns::NAMES).await {
            Ok(()) => true,
            Err(source) => {
                let first = match DatabaseErrorKind::from_error(&source) {
                    DatabaseErrorKind::NoColumn => {
                        self.has_columns(&migrations.first_columns()).await
                    }
                    _ => Err(source),
                };
                match first {
                    Ok(()) => false,
                    Err(source) if is_column_missing(&source) && self.is_adoptable().await? => {
                        false
                    }
                    Err(source) => return self.unreadable(source).await,
                }
            }
        };
        let (version, hidden) = match self.schema_number(VERSION_OF).await {
            Ok(version) => (version, None),
            Err(source) => match DatabaseErrorKind::from_error(&source) {
                // A table that was created manually may have no version beside it.
                DatabaseErrorKind::NoTable => (None, None),
                DatabaseErrorKind::Rights => (None, Some(source)),
                _ => return Err(failed()(source)),
            },
        };
        match version {
            Some(found) if found > known => {
                // Without the column, the table may be used by no program but those that know its version.
                let min_code = self.schema_number(MIN_CODE_OF).await.ok().flatten();
                return Ok(match min_code {
                    Some(min_code) if min_code <= known && is_complete => {
                        SchemaState::Compatible { found, known, min_code }
                    }
                    min_code => SchemaState::Newer { found, known, min_code },
                });
            }
            Some(version)
                if version == known && is_complete && self.has_tables_beside().await? =>
            {
                return Ok(SchemaState::Current { version });
            }
            _ => {}
        }
        let mut found = Found { version, ..self.inspect().await.map_err(failed())? };
        let visible = migrations.visible(&self.table, &found);
        let at = version.map_or(visible, |version| version.min(visible));
        Ok(match (version, hidden) {
            (None, None) if visible == known => SchemaState::Unversioned,
            (None, Some(source)) if visible == known => SchemaState::Hidden { source },
            (_, hidden) => {
                // Nothing is recorded about a table that is to be adopted, and creating the table of the versions
                // once more is harmless.
                if hidden.is_some() && at > 0 {
                    found.version = Some(at);
                    if found.no_versions {
                        // MySQL does not list the columns of a table that this user may not read.
                        (found.no_versions, found.no_min_code) = (false, at < 2);
                    }
                }
                let planned = migrations.plan(&self.table, &found);
                let sql = plan::print(DB::DIALECT, &self.table, &planned);
                SchemaState::Older { found: at, known, sql }
            }
        })
    }

    async fn is_adoptable(&self) -> Result<bool, Error> {
        let found = self.inspect().await.map_err(Error::database("checking the table"))?;
        Ok(DB::DIALECT.migrations.is_adoptable(&self.table, &found))
    }

    async fn inspect(&self) -> sqlx::Result<Found> {
        with_connection!(self, connection => inspect::<DB>(connection, &self.table).await)
    }

    async fn has_columns(&self, columns: &[&str]) -> sqlx::Result<()> {
        let sql = of_schema(DB::DIALECT, &self.table, &select_nothing(columns));
        self.rows_once(sql, vec![]).await.map(drop)
    }

    /// Returns whether the tables exist that belong to all outboxes. One that this user may not read does.
    async fn has_tables_beside(&self) -> Result<bool, Error> {
        let sql = of_schema(DB::DIALECT, &self.table, READ_BESIDE);
        let Err(error) = self.rows_once(sql, vec![]).await else { return Ok(true) };
        match DatabaseErrorKind::from_error(&error) {
            DatabaseErrorKind::NoTable => Ok(false),
            DatabaseErrorKind::Rights => Ok(true),
            _ => Err(Error::database("checking the table")(error)),
        }
    }

    async fn schema_number(&self, template: &str) -> sqlx::Result<Option<i64>> {
        let rows = self.rows_once(of_schema(DB::DIALECT, &self.table, template), vec![]).await?;
        rows.first().map_or(Ok(None), |row| DB::int(row, 0))
    }

    /// Returns the state of a table from which the columns of the first version cannot be read.
    async fn unreadable(&self, source: sqlx::Error) -> Result<SchemaState, Error> {
        match DatabaseErrorKind::from_error(&source) {
            DatabaseErrorKind::NoTable => Ok(self.missing_or_forbidden(source).await),
            DatabaseErrorKind::NoColumn | DatabaseErrorKind::NoDatabase => {
                Ok(SchemaState::Missing { source })
            }
            DatabaseErrorKind::Rights => Ok(SchemaState::Forbidden { source }),
            _ => Err(Error::database("checking the table")(source)),
        }
    }
}
