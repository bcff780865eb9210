//! Several outboxes on one table, in one process.

use outbox::config::Mode;
use outbox::error::{StartError, StartFault};
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{Builder, Error, Outbox};
use outbox_tests::{CallLog, Fresh, TestDatabase, event, on_every_database};
use sqlx::Sqlite;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use crate::harness::{manual_poll, recording_listeners, write};

fn first() -> ListenerRegistry {
    ListenerRegistry::new().register_for("Order", "Placed", |_: Delivery| async {}).register_for(
        "Order",
        "Paid",
        |_: Delivery| async {},
    )
}

fn second() -> ListenerRegistry {
    ListenerRegistry::new().register_for("Order", "Paid", |_: Delivery| async {}).register_for(
        "Order",
        "Sent",
        |_: Delivery| async {},
    )
}

/// Starts an outbox that must be refused because of one conflict, and returns its error.
async fn refused<DB: TestDatabase>(builder: Builder<DB>) -> StartError {
    let Err(Error::Start(error)) = builder.start().await else { panic!("it was started") };
    assert!(matches!(error.faults(), [StartFault::SharedTable { .. }]), "{error}");
    error
}

async fn another_listener_for_an_event_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let running = manual_poll(&db, first()).start().await.unwrap();
    let error = refused(manual_poll(&db, second())).await;
    let [StartFault::SharedTable { table, aggregate, event, running_place, place, .. }] =
        error.faults()
    else {
        panic!("{error}")
    };
    assert_eq!((table.name(), &**aggregate, &**event), ("outbox_event", "Order", "Paid"));
    assert!(running_place.line < place.line, "{error}");
    let text = error.to_string();
    for part in [
        "table `outbox_event`",
        "event `Paid` of aggregate `Order`",
        &format!("a manually registered listener ({running_place})"),
        &format!("a manually registered listener ({place})"),
        "start one outbox for the table",
        "different event types",
        "another table",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A refused start leaves nothing behind that others would be compared with.
    let only_sent = ListenerRegistry::new().register_for("Order", "Sent", |_: Delivery| async {});
    let sent = manual_poll(&db, only_sent).start().await.unwrap();
    sent.shutdown().await.unwrap();
    running.shutdown().await.unwrap();
}

async fn the_same_listeners_and_other_events_are_allowed<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let mut outboxes: Vec<Outbox<DB>> = Vec::new();
    for _ in 0..3 {
        outboxes.push(manual_poll(&db, first()).start().await.unwrap());
    }
    outboxes.push(manual_poll(&db, recording_listeners(&received)).start().await.unwrap());
    let writer_only = manual_poll(&db, second()).mode(Mode::WriterOnly).start().await.unwrap();
    write(&outboxes[3], &[event("A")]).await;
    received.wait_for(1).await;
    for outbox in outboxes.into_iter().chain([writer_only]) {
        outbox.shutdown().await.unwrap();
    }
}

async fn another_table_is_allowed<DB: TestDatabase>(db: Fresh<DB>) {
    let running = manual_poll(&db, first()).start().await.unwrap();
    let other = manual_poll(&db, second()).table("other_events").start().await.unwrap();
    refused(manual_poll(&db, first()).table("other_events")).await;
    other.shutdown().await.unwrap();
    running.shutdown().await.unwrap();
}

async fn another_database_is_allowed<DB: TestDatabase>(db: Fresh<DB>) {
    let other = Fresh::<DB>::new().await.unwrap();
    let running = manual_poll(&db, first()).start().await.unwrap();
    let second = manual_poll(&other, second()).start().await.unwrap();
    second.shutdown().await.unwrap();
    running.shutdown().await.unwrap();
}

async fn an_outbox_that_has_ended_is_forgotten<DB: TestDatabase>(db: Fresh<DB>) {
    let running = manual_poll(&db, first()).start().await.unwrap();
    running.shutdown().await.unwrap();
    let dropped = manual_poll(&db, second()).start().await.unwrap();
    refused(manual_poll(&db, first())).await;
    drop(dropped);
    let again = manual_poll(&db, first()).start().await.unwrap();
    again.shutdown().await.unwrap();
    // The handle of an outbox that was shut down may be kept.
    drop(running);
}

/// The same database through another pool, as a second part of a program would have it.
async fn another_pool_of_the_same_database_is_compared<DB: TestDatabase>(db: Fresh<DB>) {
    let running = manual_poll(&db, first()).start().await.unwrap();
    let pool = db.single().await;
    refused(outbox::builder(pool).listeners(second())).await;
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_file_is_recognised_under_another_path() {
    let db = Fresh::<Sqlite>::new().await.unwrap();
    let running = manual_poll(&db, first()).start().await.unwrap();
    let file = db.pool.connect_options().get_filename().to_owned();
    let (folder, name) = (file.parent().unwrap(), file.file_name().unwrap());
    let other_path = folder.join("..").join(folder.file_name().unwrap()).join(name);
    let options = SqliteConnectOptions::new().filename(other_path);
    let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
    refused(outbox::builder(pool).listeners(second())).await;
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_database_in_memory_is_not_shared() {
    let pool = || SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:");
    let one = outbox::builder(pool().await.unwrap()).listeners(first()).start().await.unwrap();
    let two = outbox::builder(pool().await.unwrap()).listeners(second()).start().await.unwrap();
    one.shutdown().await.unwrap();
    two.shutdown().await.unwrap();
}

/// On PostgreSQL, the search path decides which table a name means.
#[tokio::test]
async fn a_table_of_the_same_name_in_another_schema_is_allowed() {
    let Some(db) = Fresh::<sqlx::Postgres>::new().await else { return };
    let running = manual_poll(&db, first()).start().await.unwrap();
    db.run("CREATE SCHEMA tenant").await;
    let options = (*db.pool.connect_options()).clone().options([("search_path", "tenant")]);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let other = outbox::builder(pool).listeners(second()).start().await.unwrap();
    // The same table under its full name.
    refused(manual_poll(&db, first()).table("tenant.outbox_event")).await;
    other.shutdown().await.unwrap();
    running.shutdown().await.unwrap();
}

on_every_database!(
    another_listener_for_an_event_is_refused,
    the_same_listeners_and_other_events_are_allowed,
    another_table_is_allowed,
    another_database_is_allowed,
    an_outbox_that_has_ended_is_forgotten,
    another_pool_of_the_same_database_is_compared,
);
