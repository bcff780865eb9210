//! Making the table.

use std::error::Error as _;
use std::time::Duration;

use outbox::Status;
use outbox_runtime::Error;
use outbox_runtime::store::{
    Completion, Finish, Finished, SchemaError, Store, Subscription, Table, migrate, migration_sql,
};
use outbox_tests::{Fresh, Rows, TestDatabase, event, on_every_database};

use super::claim;

async fn migrating_twice_is_harmless<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    (&db, &store).insert_due(&[event("A")]).await;
    migrate(&db.pool, &Table::default()).await.unwrap();
    store.verify().await.unwrap();
    assert_eq!((&db, &store).count().await, 1);
}

async fn many_processes_start_at_once<DB: TestDatabase>(db: Fresh<DB>) {
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

async fn every_module_has_a_table_of_its_own<DB: TestDatabase>(db: Fresh<DB>) {
    let long = "x".repeat(63);
    for name in ["org_outbox", "order", "Group", long.as_str()] {
        let table = Table::new(name).unwrap();
        let store = db.store_of(&table).await;
        let mut connection = db.pool.acquire().await.unwrap();
        let envelope = event("A");
        let row = outbox_runtime::store::NewRow {
            envelope: &envelope,
            seated: outbox_runtime::store::Seated::No,
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
    let done =
        Finish { sequence: claimed[0].sequence, token: claimed[0].token, result: Finished::Done };
    assert!(store.finish("a", &[done], Completion::Keep).await.unwrap().is_empty());
    assert_eq!(rows.row(inserted[0].sequence).await.status, Status::Done);
    assert_eq!(store.stats(&Subscription::ALL).await.unwrap().pending, 1);
    rows.age(Duration::from_secs(10)).await;
    assert_eq!(store.purge_done(Duration::from_secs(5), None, 500).await.unwrap().deleted, 1);
}

async fn the_printed_sql_makes_the_same_table<DB: TestDatabase>(db: Fresh<DB>) {
    let table = Table::new("by_hand").unwrap();
    let store = Store::new(db.pool.clone(), table.clone());
    db.run(migration_sql::<DB>(&table)).await;
    store.verify().await.unwrap();
    migrate(&db.pool, &table).await.unwrap();
    (&db, &store).insert_due(&[event("A")]).await;
    assert_eq!(claim::all(&store, "a").await.rows.len(), 1);
}

async fn a_missing_table_is_answered_with_the_sql<DB: TestDatabase>(db: Fresh<DB>) {
    let store = Store::new(db.pool.clone(), Table::default());
    let error = store.verify().await.unwrap_err();
    let Error::Schema(SchemaError::Missing { sql, .. }) = &error else { panic!("{error:?}") };
    assert_eq!(*sql, migration_sql::<DB>(&Table::default()));
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
    assert!(error.source().is_some(), "what the database said");
    db.run(sql.clone()).await;
    store.verify().await.unwrap();
}

async fn a_wrong_table_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE outbox_event (event_id VARCHAR(36) PRIMARY KEY)").await;
    let store = Store::new(db.pool.clone(), Table::default());
    let error = store.verify().await.unwrap_err();
    assert!(matches!(error, Error::Schema(SchemaError::Missing { .. })), "{error:?}");
    assert!(migrate(&db.pool, &Table::default()).await.is_err(), "it is not overwritten");
}

async fn a_newer_table_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    db.run("UPDATE outbox_schema SET version = 7").await;
    for error in
        [store.verify().await.unwrap_err(), migrate(&db.pool, &Table::default()).await.unwrap_err()]
    {
        assert!(
            matches!(error, Error::Schema(SchemaError::Newer { found: 7, known: 1, .. })),
            "{error:?}"
        );
        assert!(error.to_string().contains("deploy the newer program"), "{error}");
    }
}

on_every_database!(
    migrating_twice_is_harmless,
    many_processes_start_at_once,
    every_module_has_a_table_of_its_own,
    a_table_may_be_in_another_schema,
    the_printed_sql_makes_the_same_table,
    a_missing_table_is_answered_with_the_sql,
    a_wrong_table_is_refused,
    a_newer_table_is_refused,
);
