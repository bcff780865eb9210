//! Creates and migrates a table, one process at a time.

use std::time::{Duration, Instant};

use sqlx::Pool;

use super::{MIN_CODE_OF, VERSION_OF, inspect, number, order};
use crate::Error;
use crate::error::SchemaError;
use crate::ordering::Ordering;
use crate::store::statements::of_schema;
use crate::store::{Backend, Store, Table};

/// Creates the table, or migrates it to the latest version. Does nothing if it has that already. A table of the
/// original Java framework is adopted, with all of its rows; see
/// [Adopting a table](https://docs.rs/outbox/latest/outbox/guide/adopting/index.html).
///
/// [`Builder::start`](crate::Builder::start) does this by itself. Call it in a step of the deployment instead, with a
/// user that may change tables, so that the application's user need not; or run the SQL of
/// [`migration_sql`](crate::store::migration_sql).
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
/// - [`SchemaError::NotAnOutbox`] if there is a table of this name with other columns. It is not changed.
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
    migrate_for(pool, table, Ordering::Unordered).await
}

/// Creates the table, or migrates it to the latest version, and adds what an ordered outbox needs: an index, and on
/// MySQL and MariaDB two computed columns for it.
///
/// [`Builder::start`](crate::Builder::start) does this by itself if [`order`](crate::Builder::order) is set. Everything
/// else is as with [`migrate`].
///
/// # Errors
/// Those of [`migrate`].
///
/// # Cancel safety
/// As with [`migrate`].
pub async fn migrate_ordered<DB: Backend>(pool: &Pool<DB>, table: &Table) -> Result<(), Error> {
    migrate_for(pool, table, Ordering::PerAggregate).await
}

async fn migrate_for<DB: Backend>(
    pool: &Pool<DB>,
    table: &Table,
    order: Ordering,
) -> Result<(), Error> {
    let (begun, limit) = (Instant::now(), pool.options().get_acquire_timeout());
    loop {
        match migrate_once(pool, table, order, limit).await {
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
    order: Ordering,
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
        step_up::<DB>(&mut work, table, order).await?;
        return work.commit().await.map_err(failed("committing"));
    }
    let Some(lock) = lock else { return step_up::<DB>(&mut connection, table, order).await };
    if !lock.take::<DB>(&mut connection, table, limit).await.map_err(failed(LOCKING))? {
        drop(connection.close().await);
        return Err(lock.denied(pool, table, limit).await.into());
    }
    let result = step_up::<DB>(&mut connection, table, order).await;
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
async fn step_up<DB: Backend>(
    connection: &mut DB::Connection,
    table: &Table,
    order: Ordering,
) -> Result<(), Error> {
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
    let missing = migrations.lacking(table, &found);
    if !missing.is_empty() {
        return Err(SchemaError::NotAnOutbox { table: table.clone(), missing }.into());
    }
    let mut is_limited = migrations.lock_timeout.is_empty();
    let mut planned = migrations.plan(table, &found);
    if order == Ordering::PerAggregate {
        planned.extend(order::plan(DB::DIALECT, table, &found));
    }
    for planned in planned {
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
