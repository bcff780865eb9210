//! The table, made and kept up to date.
//!
//! Migrations are embedded, numbered and only go forward. A table `outbox_schema` beside the outbox's
//! own remembers how far each outbox has come.

use sqlx::Pool;

use super::dialect::Dialect;
use super::migration_lock;
use super::statements::of_schema;
use super::{Backend, DatabaseErrorKind, Store, Table};
use crate::Error;
use crate::error::SchemaError;

/// Where a table stands between its migrations.
#[derive(Debug)]
pub enum SchemaState {
    /// It is not there, or lacks a column.
    Missing {
        /// What the database said.
        source: sqlx::Error,
    },
    /// It has every column, and nothing tells its version: it was made by hand.
    Unversioned,
    /// It has every column, and this user may not read its version.
    Hidden {
        /// What the database said.
        source: sqlx::Error,
    },
    /// There are migrations to run.
    Older {
        /// Its version.
        found: i64,
        /// The latest.
        known: i64,
    },
    /// It is up to date.
    Current {
        /// Its version, the latest.
        version: i64,
    },
    /// It is of a later version than this program knows.
    Newer {
        /// Its version.
        found: i64,
        /// The latest that is known.
        known: i64,
    },
}

/// Embedded migrations, the first is version 1.
struct Migrations {
    steps: &'static [&'static str],
    versions: &'static str,
    setup: &'static str,
    /// Whether a failed step leaves nothing behind.
    transactional: bool,
}

const VERSION_OF: &str = "SELECT {int:version} FROM {versions} WHERE table_name = $1";
const SET_VERSION: &str = "UPDATE {versions} SET version = $1 WHERE table_name = $2";
const ADD_VERSION: &str = "INSERT INTO {versions} (version, table_name) VALUES ($1, $2)";

/// Fails if a column is missing; returns nothing.
const VERIFY: &str = "SELECT {all_columns} FROM {table} WHERE 1 = 0";

fn migrations(dialect: &Dialect) -> Migrations {
    match dialect.name {
        "PostgreSQL" => Migrations {
            steps: &[include_str!("schema/postgres/0001_create.sql")],
            versions: "CREATE TABLE IF NOT EXISTS {versions} \
                (table_name varchar(63) PRIMARY KEY, version integer NOT NULL);",
            setup: "",
            transactional: true,
        },
        "MySQL" => Migrations {
            steps: &[include_str!("schema/mysql/0001_create.sql")],
            versions: "CREATE TABLE IF NOT EXISTS {versions} \
                (table_name VARCHAR(63) PRIMARY KEY, version INT NOT NULL);",
            // The application may have switched it off; nothing would be committed.
            setup: "SET SESSION autocommit = 1",
            transactional: false,
        },
        _ => Migrations {
            steps: &[include_str!("schema/sqlite/0001_create.sql")],
            versions: "CREATE TABLE IF NOT EXISTS {versions} \
                (table_name TEXT PRIMARY KEY, version INTEGER NOT NULL);",
            setup: "PRAGMA journal_mode = WAL",
            transactional: true,
        },
    }
}

/// Fills in a template of the schema.
pub(super) fn render(dialect: &Dialect, table: &Table, template: &str) -> String {
    let beside = |name: &str| table.beside(name).quoted(dialect.quote);
    let mut sql = template
        .replace("{versions}", &beside("outbox_schema"))
        .replace("{name}", &format!("{0}{1}{0}", dialect.quote, table.name()));
    if dialect.name == "SQLite"
        && let Some(schema) = table.schema()
    {
        // SQLite has the schema before the index's name.
        sql = sql.replace("INDEX {index:", &format!("INDEX \"{schema}\".{{index:"));
    }
    dialect.render(&sql, table)
}

/// Everything that makes the table, as SQL to be run by hand.
pub fn migration_sql<DB: Backend>(table: &Table) -> String {
    let migrations = migrations(DB::DIALECT);
    let mut sql = render(DB::DIALECT, table, migrations.versions);
    for step in migrations.steps {
        sql.push_str("\n\n");
        sql.push_str(render(DB::DIALECT, table, step).trim_end());
    }
    let version = migrations.steps.len();
    let values = ADD_VERSION.replace("$1", &version.to_string());
    let values = values.replace("$2", &format!("'{}'", table.name()));
    sql.push_str("\n\n");
    sql.push_str(&render(DB::DIALECT, table, &values));
    sql.push_str(";\n");
    sql
}

/// Makes the table, or brings it up to date. Safe to be called by many processes at once: one migrates, and the
/// others wait, as long as the pool waits for a connection (`acquire_timeout`).
///
/// # Errors
/// If the table is of a later version, another session holds the lock of the migrations for too long, or the
/// database fails.
pub async fn migrate<DB: Backend>(pool: &Pool<DB>, table: &Table) -> Result<(), Error> {
    let store = Store::new(pool.clone(), table.clone());
    let failed = |step| failed(table, step);
    let (migrations, lock) = (migrations(DB::DIALECT), migration_lock::of(DB::DIALECT));
    let limit = pool.options().get_acquire_timeout();
    let _guard = store.acquire_writer().await?;
    let mut connection = pool.acquire().await.map_err(failed("connecting"))?;
    if !migrations.transactional {
        // If this future is dropped, what it has set and locked must not stay with a connection in the pool.
        connection.close_on_drop();
    }
    if !migrations.setup.is_empty() {
        let setup = of_schema(DB::DIALECT, table, migrations.setup);
        DB::run(&mut connection, setup).await.map_err(failed("setting up the database"))?;
    }
    if migrations.transactional {
        drop(connection);
        let begun = pool.begin_with(store.sql.begin_work.clone()).await;
        let mut work = begun.map_err(failed("beginning a transaction"))?;
        if let Some(lock) = lock
            && !lock.take::<DB>(&mut work, table, limit).await.map_err(failed(LOCKING))?
        {
            // The question who has it goes by another connection, and there may be one only.
            drop(work.rollback().await);
            return Err(lock.denied(pool, table, limit).await.into());
        }
        step_up::<DB>(&mut work, table, &migrations).await?;
        return work.commit().await.map_err(failed("committing"));
    }
    let Some(lock) = lock else { return step_up::<DB>(&mut connection, table, &migrations).await };
    if !lock.take::<DB>(&mut connection, table, limit).await.map_err(failed(LOCKING))? {
        drop(connection.close().await);
        return Err(lock.denied(pool, table, limit).await.into());
    }
    let result = step_up::<DB>(&mut connection, table, &migrations).await;
    lock.release::<DB>(&mut connection, table).await;
    result
}

const LOCKING: &str = "taking the migration lock";

/// For `map_err`: what was being done when the driver failed.
fn failed(table: &Table, step: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Error {
    let (table, step) = (table.clone(), step.into());
    move |source| SchemaError::Migration { table, step, source }.into()
}

async fn step_up<DB: Backend>(
    connection: &mut DB::Connection,
    table: &Table,
    migrations: &Migrations,
) -> Result<(), Error> {
    let failed = |step: String| failed(table, step);
    let sql = |template: &str| of_schema(DB::DIALECT, table, template);
    let versions = table.beside("outbox_schema");
    let step = format!("creating table `{versions}`");
    DB::run(connection, sql(migrations.versions)).await.map_err(failed(step))?;
    let step = format!("reading the version in table `{versions}`");
    let found = version_of::<DB>(connection, table).await.map_err(failed(step))?;
    let known = migrations.steps.len() as i64;
    if let Some(found) = found.filter(|found| *found > known) {
        return Err(Error::Schema(SchemaError::Newer { table: table.clone(), found, known }));
    }
    let done = usize::try_from(found.unwrap_or_default()).unwrap_or_default();
    for (template, version) in migrations.steps.iter().zip(1i64..).skip(done) {
        let (set, step) = match version {
            1 => (ADD_VERSION, format!("creating table `{table}` and its indexes")),
            _ => (SET_VERSION, format!("running migration {version}")),
        };
        DB::run(connection, sql(template)).await.map_err(failed(step))?;
        let args = vec![version.into(), table.name().into()];
        let step = format!("writing version {version} to table `{versions}`");
        DB::execute(connection, sql(set), args).await.map_err(failed(step))?;
    }
    Ok(())
}

async fn version_of<DB: Backend>(
    connection: &mut DB::Connection,
    table: &Table,
) -> sqlx::Result<Option<i64>> {
    let sql = of_schema(DB::DIALECT, table, VERSION_OF);
    version::<DB>(DB::fetch(connection, sql, vec![table.name().into()]).await?)
}

fn version<DB: Backend>(rows: Vec<DB::Row>) -> sqlx::Result<Option<i64>> {
    rows.first().map_or(Ok(None), |row| DB::int(row, 0))
}

impl<DB: Backend> Store<DB> {
    /// Checks that the table is there and of a version that is known. Needs no right to change it.
    ///
    /// # Errors
    /// If it is not, with the SQL that makes it.
    pub async fn verify(&self) -> Result<(), Error> {
        let table = self.table.clone();
        match self.schema_state().await? {
            SchemaState::Missing { source } => Err(Error::Schema(SchemaError::Missing {
                table,
                sql: migration_sql::<DB>(&self.table),
                source,
            })),
            SchemaState::Newer { found, known } => {
                Err(Error::Schema(SchemaError::Newer { table, found, known }))
            }
            SchemaState::Unversioned
            | SchemaState::Hidden { .. }
            | SchemaState::Older { .. }
            | SchemaState::Current { .. } => Ok(()),
        }
    }

    /// Looks how far the table has come. Needs no right to change it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn schema_state(&self) -> Result<SchemaState, Error> {
        let failed = || Error::database("checking the table");
        let sql = of_schema(DB::DIALECT, &self.table, VERIFY);
        if let Err(source) = self.rows_once(sql, vec![]).await {
            return match DatabaseErrorKind::from_error(&source) {
                DatabaseErrorKind::NoTable
                | DatabaseErrorKind::NoColumn
                | DatabaseErrorKind::NoDatabase
                | DatabaseErrorKind::Rights => Ok(SchemaState::Missing { source }),
                _ => Err(failed()(source)),
            };
        }
        let sql = of_schema(DB::DIALECT, &self.table, VERSION_OF);
        let found =
            match self.rows_once(sql, vec![self.table.name().into()]).await.and_then(version::<DB>)
            {
                Ok(found) => found,
                Err(source) => match DatabaseErrorKind::from_error(&source) {
                    // A table that was made by hand may have no version beside it.
                    DatabaseErrorKind::NoTable => None,
                    DatabaseErrorKind::Rights => return Ok(SchemaState::Hidden { source }),
                    _ => return Err(failed()(source)),
                },
            };
        let known = migrations(DB::DIALECT).steps.len() as i64;
        Ok(match found {
            None => SchemaState::Unversioned,
            Some(found) if found > known => SchemaState::Newer { found, known },
            Some(found) if found < known => SchemaState::Older { found, known },
            Some(version) => SchemaState::Current { version },
        })
    }
}
