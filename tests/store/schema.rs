//! Creating and verifying the table.

use std::error::Error as _;
use std::time::{Duration, Instant};

use outbox::event::Status;
use outbox_runtime::Error;
use outbox_runtime::event::{Recipient, Verdict};
use outbox_runtime::store::{
    Completion, SchemaError, SchemaState, Settlement, Store, Table, TypeFilter, migrate,
    migration_sql,
};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, eventually, on_every_database};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::{Pool, SqlSafeStr};
use tokio::task::JoinHandle;

use super::claim;

async fn migrating_twice_is_harmless<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    (&db, &store).insert_due(&[event("A")]).await;
    migrate(&db.pool, &Table::default()).await.unwrap();
    store.verify().await.unwrap();
    assert_eq!((&db, &store).count().await, 1);
}

async fn concurrent_migrations_succeed<DB: TestDatabase>(db: Fresh<DB>) {
    let starts: Vec<_> = (0..8)
        .map(|_| {
            let pool = db.pool.clone();
            tokio::spawn(async move { migrate(&pool, &Table::default()).await })
        })
        .collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
    Store::new(db.pool.clone(), Table::default()).verify().await.unwrap();
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_schema").await, 1);
}

async fn several_tables_can_share_a_database<DB: TestDatabase>(db: Fresh<DB>) {
    let long = "x".repeat(63);
    for name in ["org_outbox", "order", "Group", long.as_str()] {
        let table = Table::new(name).unwrap();
        let store = db.store_of(&table).await;
        let mut connection = db.pool.acquire().await.unwrap();
        let envelope = event("A");
        let row = outbox_runtime::store::NewRow {
            envelope: &envelope,
            state: outbox_runtime::store::InitialState::Due,
            recipient: &Recipient::Unnamed,
        };
        store.insert(&mut connection, &[row]).await.unwrap();
        drop(connection);
        assert_eq!(claim::all(&store, "a").await.rows.len(), 1, "{name}");
    }
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_schema").await, 4);
}

async fn a_table_may_be_in_another_schema<DB: TestDatabase>(db: Fresh<DB>) {
    // SQLite calls its own file `main`.
    let schema = match DB::URL_VARIABLE {
        Some(_) => format!("{}_other", db.name()),
        None => "main".to_owned(),
    };
    if DB::URL_VARIABLE.is_some() {
        db.run(format!("CREATE SCHEMA {schema}")).await;
    }
    let store = db.store_of(&Table::new(&format!("{schema}.events")).unwrap()).await;
    store.verify().await.unwrap();
    let rows = (&db, &store);
    let inserted = rows.insert_due(&[event("A"), event("B")]).await;
    let claimed = claim::all(&store, "a").await.rows;
    assert_eq!(claimed.len(), 2);
    let done = Settlement {
        sequence: claimed[0].sequence,
        token: claimed[0].token,
        verdict: Verdict::Done,
        history: None,
    };
    assert!(store.settle("a", &[done], Completion::Keep).await.unwrap().is_empty());
    assert_eq!(rows.row(inserted[0].sequence).await.status, Status::Done);
    assert_eq!(store.stats(&TypeFilter::ALL).await.unwrap().pending, 1);
    rows.age(Duration::from_secs(10)).await;
    assert_eq!(store.purge_done(Duration::from_secs(5), None, 500).await.unwrap().deleted, 1);
}

async fn the_printed_sql_creates_the_same_table<DB: TestDatabase>(db: Fresh<DB>) {
    let table = Table::new("manual").unwrap();
    let store = Store::new(db.pool.clone(), table.clone());
    db.run(migration_sql::<DB>(&table)).await;
    store.verify().await.unwrap();
    migrate(&db.pool, &table).await.unwrap();
    (&db, &store).insert_due(&[event("A")]).await;
    assert_eq!(claim::all(&store, "a").await.rows.len(), 1);
}

async fn a_missing_table_is_reported_with_the_migration_sql<DB: TestDatabase>(db: Fresh<DB>) {
    let store = Store::new(db.pool.clone(), Table::default());
    let error = store.verify().await.unwrap_err();
    let Error::Schema(SchemaError::Missing { sql, .. }) = &error else { panic!("{error:?}") };
    assert_eq!(*sql, migration_sql::<DB>(&Table::default()));
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
    assert!(error.source().is_some(), "the error of the database");
    db.run(sql.clone()).await;
    store.verify().await.unwrap();
}

async fn a_wrong_table_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE outbox_event (event_id VARCHAR(36) PRIMARY KEY)").await;
    let store = Store::new(db.pool.clone(), Table::default());
    let error = store.verify().await.unwrap_err();
    let refused = migrate(&db.pool, &Table::default()).await.unwrap_err();
    for error in [error, refused] {
        let Error::Schema(SchemaError::NotAnOutbox { missing, .. }) = &error else {
            panic!("{error:?}")
        };
        assert!(missing.contains(&"sequence".to_owned()), "{missing:?}");
        assert!(!missing.contains(&"event_id".to_owned()), "{missing:?}");
        assert!(error.to_string().contains("choose another name with the option `table`"));
    }
}

async fn a_newer_table_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let SchemaState::Current { version } = store.schema_state().await.unwrap() else {
        panic!("the table is new")
    };
    let (newer, needs) = (version + 5, version + 1);
    db.run(format!("UPDATE outbox_schema SET version = {newer}, min_code = {needs}")).await;
    for error in
        [store.verify().await.unwrap_err(), migrate(&db.pool, &Table::default()).await.unwrap_err()]
    {
        let Error::Schema(SchemaError::Newer { found, known, min_code, .. }) = &error else {
            panic!("{error:?}")
        };
        assert_eq!((*found, *known, *min_code), (newer, version, Some(needs)));
        assert!(error.to_string().contains("deploy the newer program"), "{error}");
    }
}

/// Another node has the lock and does not finish.
async fn a_hanging_migration_does_not_block_others_indefinitely<DB: TestDatabase>(db: Fresh<DB>) {
    let hanging = HangingMigration::begin(&db, &Table::default()).await;
    let (begun, pool) = (Instant::now(), short_timeout_pool(&db).await);
    let error = migration_error(&pool, &Table::default()).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(error.contains("table `outbox_event` was not migrated: session "), "{error}");
    assert!(error.contains("held the migration lock for longer than 1s; wait until"), "{error}");
    hanging.end().await;
    migrate(&pool, &Table::default()).await.expect("the lock is free now");
    Store::new(pool, Table::default()).verify().await.unwrap();
}

/// A dropped migration leaves no lock behind, though its connection belongs to a pool.
async fn a_dropped_migration_releases_its_lock<DB: TestDatabase>(db: Fresh<DB>) {
    let hanging = HangingMigration::begin(&db, &Table::default()).await;
    hanging.abort().await;
    let pool = short_timeout_pool(&db).await;
    let table = Table::default();
    let waited = tokio::time::timeout(Duration::from_secs(20), migrate(&pool, &table)).await;
    waited.expect("it does not have to wait").expect("no session has the lock");
}

/// Uses the longest possible names; MySQL accepts no lock name longer than 64 characters.
async fn the_lock_name_has_a_bounded_length<DB: TestDatabase>(db: Fresh<DB>) {
    let longest = if DB::SHORT_NAME == "mysql" { 64 } else { 63 };
    let name = format!("{:x<longest$}", db.name());
    db.run(format!("CREATE DATABASE {name}")).await;
    let long = db.existing(&name).await;
    let table = Table::new(&"x".repeat(63)).unwrap();
    let hanging = HangingMigration::begin(&long, &table).await;
    let pool = short_timeout_pool(&long).await;
    let error = migration_error(&pool, &table).await;
    let lock = error.split("(lock `").nth(1).and_then(|rest| rest.split('`').next());
    let lock = lock.unwrap_or_else(|| panic!("no lock is named: {error}"));
    assert!((1..=64).contains(&lock.len()), "{lock}");
    hanging.end().await;
    migrate(&pool, &table).await.unwrap();
    Store::new(pool, table).verify().await.unwrap();
}

/// A migration that has the lock, and waits for a table that another session has locked.
struct HangingMigration<DB: TestDatabase> {
    migration: JoinHandle<Result<(), Error>>,
    locker: PoolConnection<DB>,
}

impl<DB: TestDatabase> HangingMigration<DB> {
    async fn begin(db: &Fresh<DB>, table: &Table) -> Self {
        let sql =
            "CREATE TABLE outbox_schema (table_name VARCHAR(63) PRIMARY KEY, version INT NOT NULL)";
        db.run(sql).await;
        let mut locker = db.pool.acquire().await.unwrap();
        let lock = match DB::SHORT_NAME {
            "mysql" => "LOCK TABLES outbox_schema WRITE",
            _ => "BEGIN; LOCK TABLE outbox_schema IN ACCESS EXCLUSIVE MODE",
        };
        DB::run(&mut locker, lock.into_sql_str()).await.unwrap();
        let (pool, table) = (db.pool.clone(), table.clone());
        let migration = tokio::spawn(async move { migrate(&pool, &table).await });
        let waits = match DB::SHORT_NAME {
            "mysql" => {
                "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() \
                 AND state LIKE 'Waiting for table%'"
            }
            _ => DB::LOCK_WAITS,
        };
        eventually("the migration waits for the table", async || db.number(waits).await == 1).await;
        Self { migration, locker }
    }

    async fn unlock(mut locker: PoolConnection<DB>) {
        let unlock = if DB::SHORT_NAME == "mysql" { "UNLOCK TABLES" } else { "ROLLBACK" };
        DB::run(&mut locker, unlock.into_sql_str()).await.unwrap();
    }

    /// Lets the migration finish.
    async fn end(self) {
        Self::unlock(self.locker).await;
        self.migration.await.unwrap().expect("the migration succeeds");
    }

    /// Drops the migration while it waits.
    async fn abort(self) {
        self.migration.abort();
        assert!(self.migration.await.unwrap_err().is_cancelled());
        Self::unlock(self.locker).await;
    }
}

/// Returns a pool on the same database with an acquire timeout of one second.
async fn short_timeout_pool<DB: TestDatabase>(db: &Fresh<DB>) -> Pool<DB> {
    let options = (*db.pool.connect_options()).clone();
    let pool = PoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(1));
    pool.connect_with(options).await.unwrap()
}

/// Returns the error of a migration that times out.
async fn migration_error<DB: TestDatabase>(pool: &Pool<DB>, table: &Table) -> String {
    let waited = tokio::time::timeout(Duration::from_secs(20), migrate(pool, table)).await;
    waited.expect("it times out").unwrap_err().to_string()
}

mod locked {
    use super::*;

    outbox_tests::on_every_server!(
        a_hanging_migration_does_not_block_others_indefinitely,
        a_dropped_migration_releases_its_lock,
        the_lock_name_has_a_bounded_length,
    );
}

on_every_database!(
    migrating_twice_is_harmless,
    concurrent_migrations_succeed,
    several_tables_can_share_a_database,
    a_table_may_be_in_another_schema,
    the_printed_sql_creates_the_same_table,
    a_missing_table_is_reported_with_the_migration_sql,
    a_wrong_table_is_refused,
    a_newer_table_is_refused,
);
