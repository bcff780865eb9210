//! Creating, verifying and migrating the table.
//!
//! Migrations are embedded, numbered and only go forward. A table `outbox_schema` beside the outbox's own records the
//! version of each outbox, and the oldest program that may use it. `plan` finds the statements that a table needs.

pub(super) mod plan;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sqlx::Pool;

use super::dialect::Dialect;
use super::rights::Operation;
use super::statements::of_schema;
use super::{Backend, DatabaseErrorKind, Store, Table, columns, with_connection};
use crate::Error;
use crate::error::SchemaError;
use plan::Found;
pub(super) use plan::Migrations;

/// How a table relates to the schema that this program knows, from [`Admin::schema_state`](crate::Admin::schema_state).
///
/// [`Current`](Self::Current), [`Compatible`](Self::Compatible), [`Unversioned`](Self::Unversioned) and
/// [`Hidden`](Self::Hidden) can be used as they are; [`Older`](Self::Older) and [`Missing`](Self::Missing) after
/// [`migrate`]; [`Forbidden`](Self::Forbidden) with more privileges; [`Newer`](Self::Newer) only by a later program.
#[derive(Debug)]
#[non_exhaustive]
pub enum SchemaState {
    /// The table does not exist, or lacks a column of the first version.
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
        /// The version of the table: as recorded, or else by its columns and indexes.
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

/// Fails if a column is missing, or may not be read; returns no rows.
pub(super) fn select_nothing(columns: &[&str]) -> String {
    format!("SELECT {} FROM {{table}} WHERE 1 = 0", columns.join(", "))
}

/// Fills in a template of the schema.
pub(super) fn render(dialect: &Dialect, table: &Table, template: &str) -> String {
    let beside = |name: &str| table.beside(name).quoted(dialect.quote);
    let mut sql = template
        .replace("{versions}", &beside("outbox_schema"))
        .replace("{name}", &format!("{0}{1}{0}", dialect.quote, table.name()));
    if dialect.index_in_schema
        && let Some(schema) = table.schema()
    {
        sql = sql.replace("INDEX {index:", &format!("INDEX \"{schema}\".{{index:"));
    }
    dialect.render(&sql, table)
}

/// Returns the SQL that creates the table and its indexes, to be run manually.
///
/// Use it where the application's user may not create tables: add the output to the migrations of the application, or
/// give it to a database administrator. It also records the schema version in the table `outbox_schema`.
///
/// ```
/// use outbox::admin::{Table, migration_sql};
///
/// let sql = migration_sql::<sqlx::Postgres>(&Table::default());
/// assert!(sql.contains(r#"CREATE TABLE "outbox_event""#));
/// ```
pub fn migration_sql<DB: Backend>(table: &Table) -> String {
    let planned =
        DB::DIALECT.migrations.plan(table, &Found { no_versions: true, ..Found::default() });
    plan::print(DB::DIALECT, table, &planned)
}

/// Returns the SQL that migrates the table from a version to the latest, to be run manually. Empty if the version is
/// the latest; the SQL of [`migration_sql`] if it is below 1.
///
/// [`Admin::schema_state`](crate::Admin::schema_state) returns the statements that an existing table needs.
pub fn migration_sql_from<DB: Backend>(table: &Table, version: i64) -> String {
    if version < 1 {
        return migration_sql::<DB>(table);
    }
    let migrations = &DB::DIALECT.migrations;
    let planned = migrations.plan(table, &migrations.at(table, version));
    plan::print(DB::DIALECT, table, &planned)
}

/// Creates the table, or migrates it to the latest version. Does nothing if it has that already.
///
/// [`Builder::start`](crate::Builder::start) does this by itself. Call it in a step of the deployment instead, with a
/// user that may change tables, so that the application's user need not; or run the SQL of [`migration_sql`].
///
/// Several processes can call it at the same time: one migrates, and the others wait, as long as the pool waits for a
/// connection (`acquire_timeout`). Migrations only go forward, and the old program of a rolling deploy continues to
/// work if the new version permits it.
///
/// A statement that alters a table waits until no transaction uses it, and all other statements on the table wait
/// behind it. So each waits for a second at most and is then repeated, for as long as the pool waits for a connection.
///
/// ```
/// use outbox::admin::{Admin, Table, migrate};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # let options = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
/// # let pool = options.connect("sqlite::memory:").await?;
/// let table = Table::new("orders_outbox")?;
/// migrate(&pool, &table).await?;
/// Admin::new(pool, table).verify().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// - [`SchemaError::Newer`] if the table is of a later version that this program cannot use.
/// - [`SchemaError::Locked`] if another session holds the migration lock for too long: wait, and call it again.
/// - [`SchemaError::Migration`] if a statement fails, usually for lack of a privilege. On MySQL and MariaDB, the
///   statements before it stay, and the next call continues.
///
/// All are in [`Error::Schema`]. On SQLite, [`Error::WriterLockTimeout`] if a transaction of this process stays open.
///
/// # Cancel safety
/// If the future is dropped, the migration is rolled back, or on MySQL and MariaDB completed by the next call.
pub async fn migrate<DB: Backend>(pool: &Pool<DB>, table: &Table) -> Result<(), Error> {
    let (begun, limit) = (Instant::now(), pool.options().get_acquire_timeout());
    loop {
        match migrate_once(pool, table, limit).await {
            Err(error)
                if error.database_error_kind().is_contention() && begun.elapsed() < limit =>
            {
                // The statements that wait behind the migration go first. On SQLite, the change to WAL fails at
                // once while another connection uses the file.
                let pause = rand::random_range(100..300);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            result => return result,
        }
    }
}

async fn migrate_once<DB: Backend>(
    pool: &Pool<DB>,
    table: &Table,
    limit: Duration,
) -> Result<(), Error> {
    let store = Store::new(pool.clone(), table.clone());
    let failed = |step| failed(table, step);
    let (migrations, lock) = (&DB::DIALECT.migrations, &DB::DIALECT.migration_lock);
    let _guard = store.acquire_writer().await?;
    let mut connection = pool.acquire().await.map_err(failed("connecting"))?;
    if !migrations.transactional {
        // If this future is dropped, its settings and its lock must not stay with a connection of the pool.
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
            // The query for the holder needs another connection, and the pool may have only one.
            drop(work.rollback().await);
            return Err(lock.denied(pool, table, limit).await.into());
        }
        step_up::<DB>(&mut work, table).await?;
        return work.commit().await.map_err(failed("committing"));
    }
    let Some(lock) = lock else { return step_up::<DB>(&mut connection, table).await };
    if !lock.take::<DB>(&mut connection, table, limit).await.map_err(failed(LOCKING))? {
        drop(connection.close().await);
        return Err(lock.denied(pool, table, limit).await.into());
    }
    let result = step_up::<DB>(&mut connection, table).await;
    lock.release::<DB>(&mut connection, table).await;
    result
}

const LOCKING: &str = "taking the migration lock";

/// For `map_err`: adds the step that failed.
fn failed(table: &Table, step: &str) -> impl FnOnce(sqlx::Error) -> Error + use<> {
    let (table, step) = (table.clone(), step.to_owned());
    move |source| SchemaError::Migration { table, step, source }.into()
}

/// Runs the statements that the table needs.
async fn step_up<DB: Backend>(connection: &mut DB::Connection, table: &Table) -> Result<(), Error> {
    let failed = |step: &str| failed(table, step);
    let migrations = &DB::DIALECT.migrations;
    let mut found =
        inspect::<DB>(connection, table).await.map_err(failed("reading the catalog"))?;
    if !found.no_versions {
        let step = format!("reading the version in table `{}`", table.beside("outbox_schema"));
        found.version = number::<DB>(connection, table, VERSION_OF).await.map_err(failed(&step))?;
    }
    let known = migrations.latest();
    if let Some(version) = found.version.filter(|version| *version > known) {
        let min_code = if found.no_min_code {
            None
        } else {
            let step = "reading the oldest program that may use the table";
            number::<DB>(connection, table, MIN_CODE_OF).await.map_err(failed(step))?
        };
        if min_code.is_some_and(|min_code| min_code <= known) {
            return Ok(());
        }
        let table = table.clone();
        return Err(SchemaError::Newer { table, found: version, known, min_code }.into());
    }
    let mut is_limited = migrations.lock_timeout.is_empty();
    for planned in migrations.plan(table, &found) {
        if planned.alters && !is_limited {
            let limit = of_schema(DB::DIALECT, table, migrations.lock_timeout);
            DB::run(connection, limit).await.map_err(failed("limiting the wait for locks"))?;
            is_limited = true;
        }
        let sql = of_schema(DB::DIALECT, table, &planned.template);
        DB::run(connection, sql).await.map_err(failed(&planned.doing))?;
    }
    Ok(())
}

/// Reads what the catalog shows of the table and of the table of the versions.
async fn inspect<DB: Backend>(
    connection: &mut DB::Connection,
    table: &Table,
) -> sqlx::Result<Found> {
    let dialect = DB::DIALECT;
    let versions = table.beside("outbox_schema");
    let versions = names::<DB>(connection, &versions, dialect.columns).await?;
    Ok(Found {
        version: None,
        no_versions: versions.is_empty(),
        no_min_code: !versions.is_empty() && !versions.contains("min_code"),
        columns: names::<DB>(connection, table, dialect.columns).await?,
        indexes: names::<DB>(connection, table, dialect.indexes).await?,
    })
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
            Some(version) if version == known && is_complete => {
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
                if hidden.is_some() {
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

    async fn inspect(&self) -> sqlx::Result<Found> {
        with_connection!(self, connection => inspect::<DB>(connection, &self.table).await)
    }

    async fn has_columns(&self, columns: &[&str]) -> sqlx::Result<()> {
        let sql = of_schema(DB::DIALECT, &self.table, &select_nothing(columns));
        self.rows_once(sql, vec![]).await.map(drop)
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
