//! Faults reported at the start.

use std::time::Duration;

use outbox::admin::{Table, migration_sql};
use outbox::error::{StartError, StartFault};
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{Config, Error};
use outbox_tests::{CallLog, Fresh, TestDatabase, event, on_every_database};
use sqlx::pool::PoolOptions;

use crate::harness::{manual_poll, recording_listeners, write};

fn faults(error: Error) -> StartError {
    match error {
        Error::Start(error) => error,
        other => panic!("{other}"),
    }
}

async fn all_start_faults_are_reported_together<DB: TestDatabase>(db: Fresh<DB>) {
    let mut config = Config::default();
    config.table = "drop table; --".to_owned();
    config.workers = 0;
    config.lease = Duration::from_millis(1);
    config.retry_base = Duration::from_secs(120);
    config.node_name = Some("two words".to_owned());
    let registry = ListenerRegistry::new()
        .register("A", |_: Delivery| async {})
        .register("A", |_: Delivery| async {});
    let started = outbox::builder(db.pool.clone()).config(config).listeners(registry).start().await;
    let error = faults(started.unwrap_err());
    let text = error.to_string();
    for part in [
        "`table` must be `name` or `schema.name`",
        "but is `drop table; --`",
        "`workers` must be at least 1, but is 0",
        "`lease` must be between 1 second and 1 hour, but is 1ms",
        "`retry_max` must be at least `retry_base`, but is 60s",
        "`node_name` must be 1 to 100 printable ASCII characters without spaces, but is \"two words\"",
        "two listeners for event `A` of aggregate `__GLOBAL__`",
        "delivery/start.rs:",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(text.starts_with("the outbox cannot be started, for 6 reasons:\n"), "{text}");
    assert_eq!(error.faults().len(), 6);
}

async fn no_table_is_created_if_the_start_fails<DB: TestDatabase>(db: Fresh<DB>) {
    for table in ["outbox_event", "drop table"] {
        let registry = recording_listeners(&CallLog::default());
        let started = manual_poll(&db, registry).table(table).workers(0).start().await;
        let error = faults(started.unwrap_err());
        assert!(error.to_string().contains("`workers` must be at least 1"), "{error}");
        assert!(
            db.try_run("SELECT COUNT(*) FROM outbox_event").await.is_err(),
            "no table is created"
        );
    }
}

async fn a_missing_table_is_created<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox =
        manual_poll(&db, recording_listeners(&received)).table("own_table").start().await.unwrap();
    assert_eq!(db.number("SELECT COUNT(*) FROM own_table").await, 0);
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();
}

async fn a_newer_or_wrong_table_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    db.store().await;
    db.run("UPDATE outbox_schema SET version = 9, min_code = 9").await;
    let error = faults(manual_poll(&db, recording_listeners(&received)).start().await.unwrap_err());
    assert!(error.to_string().contains("deploy the newer program"), "{error}");
    db.run("CREATE TABLE strange (id INT PRIMARY KEY)").await;
    let error = manual_poll(&db, recording_listeners(&received))
        .table("strange")
        .start()
        .await
        .unwrap_err();
    let error = faults(error);
    assert!(matches!(error.faults(), [StartFault::Schema(_)]), "{error}");
    let error = error.to_string();
    assert!(
        error.contains("table `strange` is not an outbox table, and is left as it is"),
        "{error}"
    );
}

/// Returns the message of the database error among the causes of an error.
fn database_message(error: &StartError) -> String {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(sqlx::Error::Database(error)) = error.downcast_ref() {
            return error.message().to_owned();
        }
        cause = error.source();
    }
    panic!("the database's error is not among the causes of: {error}");
}

async fn the_reason_a_table_cannot_be_created_is_reported<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE outbox_schema (something_else INT)").await;
    let error = faults(
        manual_poll(&db, recording_listeners(&CallLog::default())).start().await.unwrap_err(),
    );
    let text = error.to_string();
    assert!(text.contains("while reading the version in table `outbox_schema`"), "{text}");
    let database_message = database_message(&error);
    assert!(
        database_message.contains("version") && text.contains(&database_message),
        "{database_message} in {text}"
    );
    assert!(text.contains(&migration_sql::<DB>(&Table::default())), "{text}");
}

async fn a_conflicting_index_name_is_reported<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE outbox_event_claim (id INT)").await;
    let started = manual_poll(&db, recording_listeners(&CallLog::default())).start().await;
    if DB::SHORT_NAME == "mysql" {
        // On MySQL, index names are local to their table.
        return started.unwrap().shutdown().await.map(drop).unwrap();
    }
    let error = faults(started.unwrap_err());
    let text = error.to_string();
    assert!(text.contains("while creating table `outbox_event` and its indexes"), "{text}");
    let database_message = database_message(&error);
    assert!(
        database_message.contains("outbox_event_claim") && text.contains(&database_message),
        "{database_message} in {text}"
    );
}

async fn a_missing_privilege_is_reported_with_the_sql<DB: TestDatabase>(db: Fresh<DB>) {
    let user = format!("reader_{:x}", rand::random::<u32>());
    let pool = read_only_pool(&db, &user).await;
    let registry = recording_listeners(&CallLog::default());
    let error = faults(outbox::builder(pool).listeners(registry).start().await.unwrap_err());
    let (text, database_message) = (error.to_string(), database_message(&error));
    let expected = match DB::SHORT_NAME {
        "postgres" => "permission denied for schema public".to_owned(),
        "mysql" => format!("CREATE command denied to user '{user}'"),
        _ => "attempt to write a readonly database".to_owned(),
    };
    assert!(
        database_message.contains(&expected) && text.contains(&database_message),
        "{database_message} in {text}"
    );
    assert!(text.contains(&migration_sql::<DB>(&Table::default())), "{text}");
}

/// Returns a pool of a user with read privileges only.
async fn read_only_pool<DB: TestDatabase>(db: &Fresh<DB>, user: &str) -> sqlx::Pool<DB> {
    match DB::SHORT_NAME {
        "postgres" => {
            db.run(format!("CREATE ROLE {user} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
                .await;
        }
        "mysql" => {
            db.run(format!("CREATE USER {user}@'%'")).await;
            db.run(format!("GRANT SELECT ON {}.* TO {user}@'%'", db.name())).await;
        }
        _ => {}
    }
    let url = match db.url().rsplit_once('@') {
        Some((server, place)) => {
            format!("{}://{user}@{place}", server.split(':').next().unwrap_or_default())
        }
        None => format!("{}?mode=ro", db.url()),
    };
    PoolOptions::<DB>::new().connect(&url).await.unwrap()
}

async fn a_closed_pool_is_a_start_fault<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    db.pool.close().await;
    let error = faults(manual_poll(&db, recording_listeners(&received)).start().await.unwrap_err());
    assert!(matches!(error.faults(), [StartFault::Database(_)]), "{error}");
    assert!(error.to_string().contains("closed"), "{error}");
}

async fn a_pool_of_one_connection_is_enough<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let pool = db.single().await;
    let outbox = outbox::builder(pool)
        .listeners(recording_listeners(&received))
        .poll_interval(Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    for _ in 0..20 {
        write(&outbox, &[event("A")]).await;
    }
    received.wait_for(20).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(20);
    outbox.shutdown().await.unwrap();
}

async fn a_start_without_listeners_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let error = faults(manual_poll(&db, ListenerRegistry::new()).start().await.unwrap_err());
    assert!(error.to_string().contains("no listener is registered"), "{error}");
    let allowed = manual_poll(&db, ListenerRegistry::new()).allow_empty().start().await.unwrap();
    allowed.shutdown().await.unwrap();
}

async fn notify_requires_postgres<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let started = manual_poll(&db, recording_listeners(&received)).notify().start().await;
    if DB::URL_VARIABLE == Some("OUTBOX_TEST_POSTGRES_URL") {
        started.unwrap().shutdown().await.unwrap();
    } else {
        let error = faults(started.unwrap_err());
        assert!(error.to_string().contains("only PostgreSQL can notify"), "{error}");
    }
}

on_every_database!(
    all_start_faults_are_reported_together,
    no_table_is_created_if_the_start_fails,
    a_missing_table_is_created,
    a_newer_or_wrong_table_is_refused,
    the_reason_a_table_cannot_be_created_is_reported,
    a_conflicting_index_name_is_reported,
    a_missing_privilege_is_reported_with_the_sql,
    a_closed_pool_is_a_start_fault,
    a_pool_of_one_connection_is_enough,
    a_start_without_listeners_is_refused,
    notify_requires_postgres,
);

#[tokio::test]
async fn without_create_privilege_the_sql_is_reported() {
    let Some(db) = Fresh::<sqlx::Postgres>::new().await else { return };
    let name = format!("{}_reader", db.name());
    db.run(format!("CREATE ROLE {name} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")).await;
    let options = (*db.pool.connect_options()).clone().username(&name);
    let pool = PoolOptions::<sqlx::Postgres>::new().connect_with(options).await.unwrap();
    let registry = recording_listeners(&CallLog::default());
    let error =
        faults(outbox::builder(pool.clone()).listeners(registry).start().await.unwrap_err());
    assert!(error.to_string().contains("CREATE TABLE \"outbox_event\""), "{error}");
    // An administrator creates it, and grants the required privileges.
    db.store().await;
    db.run(format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_event TO {name}; \
         GRANT SELECT ON outbox_schema TO {name}; \
         GRANT SELECT, INSERT, UPDATE ON outbox_subscription TO {name}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_node TO {name}"
    ))
    .await;
    let received = CallLog::default();
    let outbox =
        outbox::builder(pool).listeners(recording_listeners(&received)).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.write(event("A")).unwrap();
    tx.commit().await.unwrap();
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_in_memory_database_requires_a_single_connection() {
    let received = CallLog::default();
    let shared = PoolOptions::<sqlx::Sqlite>::new().max_connections(4);
    let shared = shared.connect("sqlite::memory:").await.unwrap();
    let error = outbox::builder(shared)
        .listeners(recording_listeners(&received))
        .start()
        .await
        .unwrap_err();
    assert!(matches!(faults(error).faults(), [StartFault::SharedMemory]));
    let own = PoolOptions::<sqlx::Sqlite>::new().max_connections(1);
    let own = own.connect("sqlite::memory:").await.unwrap();
    let outbox =
        outbox::builder(own).listeners(recording_listeners(&received)).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.write(event("A")).unwrap();
    tx.commit().await.unwrap();
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();
}
