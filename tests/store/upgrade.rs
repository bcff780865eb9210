//! Migrating a table of an earlier schema version, also while other programs write to it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use outbox::Error;
use outbox::error::{StartError, StartFault};
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{
    Completion, SchemaError, SchemaState, Settlement, Store, Table, migrate, migration_sql,
    migration_sql_from,
};
use outbox_tests::{
    CallLog, Fresh, Log, TestDatabase, VersionOne, eventually, on_every_database, on_every_server,
};
use sqlx::pool::PoolOptions;
use sqlx::{Pool, SqlSafeStr};

use super::claim;

const VERSION: &str = "SELECT CAST(version AS {wide}) FROM outbox_schema";
const MIN_CODE: &str = "SELECT CAST(min_code AS {wide}) FROM outbox_schema";

async fn recorded<DB: TestDatabase>(db: &Fresh<DB>, sql: &str) -> i64 {
    db.number(sql.replace("{wide}", DB::WIDE)).await
}

fn store<DB: TestDatabase>(db: &Fresh<DB>) -> Store<DB> {
    Store::new(db.pool.clone(), Table::default())
}

/// Returns the version and the missing statements of an older table.
async fn older<DB: TestDatabase>(store: &Store<DB>) -> (i64, String) {
    match store.schema_state().await.unwrap() {
        SchemaState::Older { found, known: 3, sql } => (found, sql),
        state => panic!("{state:?}"),
    }
}

async fn assert_current<DB: TestDatabase>(db: &Fresh<DB>) {
    let state = store(db).schema_state().await.unwrap();
    assert!(matches!(state, SchemaState::Current { version: 3 }), "{state:?}");
    assert_eq!((recorded(db, VERSION).await, recorded(db, MIN_CODE).await), (3, 3));
    let new = "FROM outbox_event WHERE subscription = '*' AND version = 1 AND history IS NULL";
    let count = db.number("SELECT COUNT(*) FROM outbox_event").await;
    assert_eq!(db.number(format!("SELECT COUNT(*) {new}")).await, count);
}

/// Claims everything that is due and settles it; adds the sequences.
async fn deliver<DB: TestDatabase>(store: &Store<DB>, delivered: &mut Vec<i64>) {
    let claimed = claim::all(store, "old").await.rows;
    let settlements: Vec<Settlement> = claimed
        .iter()
        .map(|row| Settlement {
            sequence: row.sequence,
            token: row.token,
            verdict: Verdict::Done,
            history: None,
        })
        .collect();
    let unsettled = store.settle("old", &settlements, Completion::Keep).await.unwrap();
    assert!(unsettled.is_empty(), "{unsettled:?}");
    delivered.extend(settlements.iter().map(|settlement| settlement.sequence));
}

/// A program in another language writes all the time.
async fn a_table_in_use_is_migrated_without_loss<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    for status in 0..4u8 {
        db.fill("A", status, 1 + 100 * u64::from(status), 50).await;
    }
    let db = Arc::new(db);
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writer = tokio::spawn({
        let (db, stop, written) = (Arc::clone(&db), Arc::clone(&stop), Arc::clone(&written));
        async move {
            while !stop.load(Ordering::Relaxed) {
                let number = written.load(Ordering::Relaxed);
                VersionOne::insert(&db, &format!("old-{number}")).await.unwrap();
                written.store(number + 1, Ordering::Relaxed);
            }
        }
    });
    let more = async |count: u64| {
        let goal = written.load(Ordering::Relaxed) + count;
        eventually("the writer goes on", async || written.load(Ordering::Relaxed) >= goal).await;
    };
    more(20).await;
    let migrations: Vec<_> = (0..2)
        .map(|_| {
            let pool = db.pool.clone();
            tokio::spawn(async move { migrate(&pool, &Table::default()).await })
        })
        .collect();
    for migration in migrations {
        migration.await.unwrap().unwrap();
    }
    more(20).await;
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert_current(&db).await;
    let (written, mut delivered) = (written.load(Ordering::Relaxed), Vec::new());
    while (delivered.len() as u64) < 100 + written {
        let before = delivered.len();
        deliver(&store(&db), &mut delivered).await;
        assert_ne!(delivered.len(), before, "of {written}");
    }
    assert_eq!(delivered.len() as u64, 100 + written, "every pending event");
    assert_eq!(delivered.iter().collect::<HashSet<_>>().len(), delivered.len(), "once");
    let count = async |condition: &str| {
        let sql = format!("SELECT COUNT(*) FROM outbox_event WHERE {condition}");
        u64::try_from(db.number(sql).await).unwrap()
    };
    assert_eq!(count("status = 1").await, 150 + written);
    assert_eq!(count("status = 3").await, 50);
    assert_eq!(count("1 = 1").await, 200 + written);
    // A duplicate is still recognised.
    let duplicate = VersionOne::insert(&db, "old-0").await;
    assert!(duplicate.is_err(), "{duplicate:?}");
    assert_eq!(count("1 = 1").await, 200 + written);
}

async fn an_older_table_is_reported_with_the_missing_statements<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    let (found, sql) = older(&store(&db)).await;
    assert_eq!((found, sql.as_str()), (1, migration_sql_from::<DB>(&Table::default(), 1).as_str()));
    let count = |text: &str| sql.matches(text).count();
    assert_eq!(count("ADD COLUMN"), if DB::SHORT_NAME == "mysql" { 5 } else { 4 }, "{sql}");
    assert_eq!((count("CREATE TABLE"), count("CREATE TABLE IF NOT EXISTS")), (2, 2), "{sql}");
    assert_eq!((count("CREATE UNIQUE INDEX"), count("DROP INDEX")), (1, 1), "{sql}");
    let error = store(&db).verify().await.unwrap_err();
    assert!(error.to_string().ends_with(&sql), "{error}");
    db.run(sql).await;
    assert_current(&db).await;
    assert_eq!(migration_sql_from::<DB>(&Table::default(), 3), "");
    assert_eq!(
        migration_sql_from::<DB>(&Table::default(), 0),
        migration_sql::<DB>(&Table::default())
    );
}

/// The columns show the version if it is not recorded.
async fn an_older_table_without_a_version_is_recognised<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create_table(&db).await;
    VersionOne::insert(&db, "first").await.unwrap();
    let (found, sql) = older(&store(&db)).await;
    assert_eq!(found, 1);
    assert!(!sql.contains("outbox_event_claim"), "{sql}");
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_current(&db).await;
    let mut delivered = Vec::new();
    deliver(&store(&db), &mut delivered).await;
    assert_eq!(delivered.len(), 1);
    // Complete, it is used as it is.
    db.run("DELETE FROM outbox_schema").await;
    assert!(matches!(store(&db).schema_state().await.unwrap(), SchemaState::Unversioned));
}

/// On MySQL, DDL is not transactional; on the other databases, an administrator can have run a part.
async fn a_half_applied_step_is_completed<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    let statements: Vec<String> =
        older(&store(&db)).await.1.split(";\n").map(str::to_owned).collect();
    for column in ["min_code", "subscription", "history"] {
        let statement = statements.iter().find(|sql| sql.contains(column)).unwrap();
        db.run(statement.clone()).await;
    }
    let (found, sql) = older(&store(&db)).await;
    let before_three = sql.split("version = 2").next().unwrap();
    assert_eq!((found, before_three.matches("ADD COLUMN").count()), (1, 1), "{sql}");
    assert!(before_three.contains("ADD COLUMN version "), "{sql}");
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_current(&db).await;
    // And if only the version was not recorded any more.
    db.run("UPDATE outbox_schema SET version = 2").await;
    let (_, sql) = older(&store(&db)).await;
    assert!(sql.starts_with("UPDATE") && sql.trim().lines().count() == 1, "{sql}");
    migrate(&db.pool, &Table::default()).await.unwrap();
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_current(&db).await;
}

/// Each statement shows in the catalog that it has run, so a migration can be interrupted after any of them.
async fn every_interruption_is_continued<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    VersionOne::insert(&db, "first").await.unwrap();
    let statements = |sql: &str| -> Vec<String> {
        sql.split(";\n").map(str::trim).filter(|sql| !sql.is_empty()).map(str::to_owned).collect()
    };
    let mut rest = statements(&older(&store(&db)).await.1);
    while rest.len() > 1 {
        db.run(rest.remove(0)).await;
        let (_, sql) = older(&store(&db)).await;
        assert_eq!(statements(&sql), rest);
        // No id can be written twice in between.
        assert!(VersionOne::insert(&db, "first").await.is_err());
    }
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_current(&db).await;
}

/// It would write events that it does not expand, and take those of every subscription.
async fn programs_of_version_two_are_refused<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    VersionOne::insert_as_program(&db, "before").await.unwrap();
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_current(&db).await;
    // One that runs meanwhile, on MySQL until it starts again.
    let written = VersionOne::insert_as_program(&db, "after").await;
    assert_eq!(written.is_ok(), DB::SHORT_NAME == "mysql", "{written:?}");
}

/// The row that is not expanded yet, the unnamed listener's and those of names.
async fn an_event_has_one_row_for_each_subscription<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    VersionOne::insert(&db, "old").await.unwrap();
    migrate(&db.pool, &Table::default()).await.unwrap();
    let copy = async |subscription: &str| {
        db.try_run(format!(
            "INSERT INTO outbox_event (event_id, event_type, payload, created_at, available_at, subscription) \
             SELECT event_id, event_type, payload, created_at, available_at, '{subscription}' \
             FROM outbox_event WHERE event_id = 'old' AND subscription = '*'"
        ))
        .await
    };
    for refused in ["*", ""] {
        assert!(copy(refused).await.is_err(), "`{refused}`");
    }
    for name in ["billing", "Billing", "mail", &"x".repeat(64)] {
        copy(name).await.unwrap();
        assert!(copy(name).await.is_err(), "{name}");
    }
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event WHERE event_id = 'old'").await, 5);
}

/// One that was dropped, or is not part of a restored copy.
async fn a_missing_table_beside_is_created_again<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    for table in ["outbox_subscription", "outbox_node"] {
        db.run(format!("DROP TABLE {table}")).await;
        let (found, sql) = older(&store).await;
        assert_eq!((found, sql.matches("CREATE TABLE IF NOT EXISTS").count()), (2, 1), "{sql}");
        assert!(sql.contains(table), "{sql}");
        migrate(&db.pool, &Table::default()).await.unwrap();
        assert_current(&db).await;
    }
}

/// A table whose column was lost, for instance by restoring an older copy of it.
async fn a_missing_column_is_added_whatever_version_is_recorded<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.run("ALTER TABLE outbox_event DROP COLUMN history").await;
    let (found, sql) = older(&store).await;
    assert_eq!((found, sql.trim().lines().count()), (1, 1), "{sql}");
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_current(&db).await;
}

fn listeners(received: &CallLog) -> ListenerRegistry {
    let received = received.clone();
    ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        received.record(&delivery);
        async {}
    })
}

async fn a_start_migrates_an_older_table<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    db.fill("A", 0, 1, 10).await;
    let received = CallLog::default();
    let outbox = outbox::builder(db.pool.clone()).listeners(listeners(&received));
    let outbox = outbox.start().await.unwrap();
    received.wait_for(10).await;
    assert_current(&db).await;
    VersionOne::insert(&db, "old").await.unwrap();
    outbox.shutdown().await.unwrap();
}

async fn an_older_table_is_not_migrated_if_the_start_fails<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    let outbox = outbox::builder(db.pool.clone()).listeners(listeners(&CallLog::default()));
    outbox.workers(0).start().await.unwrap_err();
    assert_eq!(recorded(&db, VERSION).await, 1);
}

/// Rolling deployments: a program that is older than the table.
async fn a_newer_table_is_used_if_it_permits_that<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    db.run("UPDATE outbox_schema SET version = 7, min_code = 3").await;
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_eq!(recorded(&db, VERSION).await, 7);
    store(&db).verify().await.unwrap();
    let received = CallLog::default();
    let (log, guard) = Log::capture();
    let outbox = outbox::builder(db.pool.clone()).listeners(listeners(&received));
    let outbox = outbox.start().await.unwrap();
    let lines = log.with("later schema version");
    assert!(lines.len() == 1 && lines[0].contains("found=7"), "{lines:?}");
    drop(guard);
    VersionOne::insert(&db, "one").await.unwrap();
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();

    db.run("UPDATE outbox_schema SET min_code = 4").await;
    let error = store(&db).verify().await.unwrap_err().to_string();
    let expected = "has schema version 7, which requires a program that knows version 4 or later, and this program \
        knows versions up to 3; deploy the newer program";
    assert!(error.contains(expected), "{error}");
    let error = start_error(db.pool.clone()).await.to_string();
    assert!(error.contains(expected), "{error}");
    // A permission that is not recorded is none.
    db.run("ALTER TABLE outbox_schema DROP COLUMN min_code").await;
    let error = store(&db).verify().await.unwrap_err().to_string();
    assert!(error.contains("requires a program that knows version 7 or later"), "{error}");
    assert!(migrate(&db.pool, &Table::default()).await.is_err());
}

async fn start_error<DB: TestDatabase>(pool: Pool<DB>) -> StartError {
    match outbox::builder(pool).listeners(listeners(&CallLog::default())).start().await {
        Err(Error::Start(error)) => error,
        started => panic!("{:?}", started.map(drop)),
    }
}

/// Creates a user, and returns its pool.
async fn restricted_pool<DB: TestDatabase>(db: &Fresh<DB>) -> (String, Pool<DB>) {
    let name = format!("dml_{:x}", rand::random::<u32>());
    let (create, user) = match DB::SHORT_NAME {
        "postgres" => (format!("CREATE ROLE {name} LOGIN"), name.clone()),
        _ => (format!("CREATE USER {name}@'%'"), format!("{name}@'%'")),
    };
    db.run(create).await;
    db.run(format!("GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event TO {user}")).await;
    let url = db.url();
    let (server, place) = url.rsplit_once('@').unwrap();
    let url = format!("{}://{name}@{place}", server.split(':').next().unwrap());
    (user, PoolOptions::<DB>::new().connect(&url).await.unwrap())
}

async fn without_ddl_privileges_the_missing_statements_are_reported<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    VersionOne::create(&db).await;
    let (user, pool) = restricted_pool(&db).await;
    let missing = migration_sql_from::<DB>(&Table::default(), 1);
    // Without the privilege to read the version, and with it.
    for _ in 0..2 {
        let error = start_error(pool.clone()).await;
        let [StartFault::Schema(SchemaError::NotMigrated { sql, found: 1, known: 3, .. })] =
            error.faults()
        else {
            panic!("{error}")
        };
        assert_eq!(*sql, missing);
        let text = error.to_string();
        assert!(text.ends_with(&missing) && !sql.contains("outbox_event_claim"), "{text}");
        assert!(text.contains("denied") || text.contains("must be owner"), "{text}");
        db.run(format!("GRANT SELECT ON outbox_schema TO {user}")).await;
    }
    db.run(missing).await;
    db.run(format!("GRANT SELECT, INSERT, UPDATE ON outbox_subscription TO {user}")).await;
    db.run(format!("GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_node TO {user}")).await;
    let received = CallLog::default();
    let outbox = outbox::builder(pool).listeners(listeners(&received)).start().await.unwrap();
    VersionOne::insert(&db, "one").await.unwrap();
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();
    let _ = db.try_run(format!("DROP OWNED BY {user}")).await;
    db.run(format!("DROP USER {user}")).await;
}

/// A statement that alters a table waits for every transaction that uses it, and all others wait behind it.
async fn writers_do_not_wait_for_a_migration_that_waits<DB: TestDatabase>(db: Fresh<DB>) {
    VersionOne::create(&db).await;
    let mut reader = db.pool.begin().await.unwrap();
    let read = "SELECT COUNT(*) FROM outbox_event".into_sql_str();
    DB::fetch(&mut reader, read, vec![]).await.unwrap();
    let pool = db.pool.clone();
    let migration = tokio::spawn(async move { migrate(&pool, &Table::default()).await });
    let waits = match DB::SHORT_NAME {
        "mysql" => {
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() \
             AND state LIKE 'Waiting for table%'"
        }
        _ => DB::LOCK_WAITS,
    };
    eventually("the migration waits", async || db.number(waits).await > 0).await;
    for number in 0..3 {
        let id = format!("old-{number}");
        let insert = tokio::time::timeout(Duration::from_secs(10), VersionOne::insert(&db, &id));
        insert.await.expect("the writer does not wait for the reader").unwrap();
    }
    assert!(!migration.is_finished(), "the reader is in its way");
    reader.rollback().await.unwrap();
    migration.await.unwrap().unwrap();
    assert_current(&db).await;
}

/// The columns are such that MySQL and MariaDB can add them without copying or locking the table.
#[tokio::test]
async fn on_mysql_the_columns_are_added_instantly() {
    let Some(db) = Fresh::<sqlx::MySql>::new().await else { return };
    VersionOne::create(&db).await;
    let sql = migration_sql_from::<sqlx::MySql>(&Table::default(), 1);
    let added: Vec<&str> =
        sql.split(";\n").map(str::trim).filter(|sql| sql.contains("outbox_event` ADD")).collect();
    assert_eq!(added.len(), 4, "{sql}");
    for statement in added {
        db.run(format!("{statement}, ALGORITHM = INSTANT")).await;
    }
    migrate(&db.pool, &Table::default()).await.unwrap();
    assert_current(&db).await;
}

mod server {
    use super::*;

    on_every_server!(
        without_ddl_privileges_the_missing_statements_are_reported,
        writers_do_not_wait_for_a_migration_that_waits,
    );
}

on_every_database!(
    a_table_in_use_is_migrated_without_loss,
    an_older_table_is_reported_with_the_missing_statements,
    an_older_table_without_a_version_is_recognised,
    a_half_applied_step_is_completed,
    every_interruption_is_continued,
    programs_of_version_two_are_refused,
    an_event_has_one_row_for_each_subscription,
    a_missing_table_beside_is_created_again,
    a_missing_column_is_added_whatever_version_is_recorded,
    a_start_migrates_an_older_table,
    an_older_table_is_not_migrated_if_the_start_fails,
    a_newer_table_is_used_if_it_permits_that,
);
