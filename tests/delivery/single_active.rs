//! One active relay: one process at a time delivers, and the others stand by.

use std::time::Duration;

use outbox::Builder;
use outbox::config::Relay;
use outbox::event::Status;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::metrics::Lane;
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_database};
use sqlx::Sqlite;
use sqlx::pool::PoolOptions;

use crate::harness::{CountingMetrics, first_row, listen, manual_poll, recording_listeners, write};

/// Returns whether the server is behind a connection pooler, where `start` refuses a single active relay.
async fn is_pooled<DB: TestDatabase>(db: &Fresh<DB>) -> bool {
    let received = CallLog::default();
    if !db.is_pooled().await {
        return false;
    }
    let refused = node(db, &received).start().await.unwrap_err().to_string();
    let expected = "connection pooler in transaction mode; connect to the server itself";
    assert!(refused.contains(expected), "{refused}");
    true
}

/// A node that polls often.
fn node<DB: TestDatabase>(db: &Fresh<DB>, received: &CallLog) -> Builder<DB> {
    manual_poll(db, recording_listeners(received))
        .relay(Relay::SingleActive)
        .poll_interval(Duration::from_millis(20))
}

async fn a_standby_writes_what_the_active_node_delivers<DB: TestDatabase>(db: Fresh<DB>) {
    if is_pooled(&db).await {
        return;
    }
    let (ours, theirs) = (CallLog::default(), CallLog::default());
    let (hot, skipped) = (CountingMetrics::default(), CountingMetrics::default());
    let active = node(&db, &ours).metrics(hot.clone()).start().await.unwrap();
    let standby = node(&db, &theirs).metrics(skipped.clone()).start().await.unwrap();
    assert_eq!((active.is_active(), standby.is_active()), (true, false));
    write(&active, &[event("A"), event("B")]).await;
    write(&standby, &[event("A"), event("B"), event("C")]).await;
    ours.wait_for(5).await;
    active.drained().await.unwrap();
    ours.assert_each_once(5);
    assert_eq!((theirs.count(), hot.enqueued(Lane::Hot)), (0, 2), "the active node has a hot path");
    let lanes = [Lane::Hot, Lane::Cold].map(|lane| skipped.enqueued(lane));
    assert_eq!(lanes, [0, 0], "the standby neither claims nor uses the hot path");
    // What a standby does not do.
    assert_eq!(standby.poll_once().await.unwrap(), 0);
    standby.drained().await.unwrap();
    assert!(hot.is_active() && !skipped.is_active(), "the gauges say the same");
    active.shutdown().await.unwrap();
    assert!(!active.is_active());
    eventually("the standby takes over", async || standby.is_active()).await;
    write(&standby, &[event("A")]).await;
    theirs.wait_for(1).await;
    assert_eq!(skipped.enqueued(Lane::Hot), 1, "now it has a hot path");
    standby.shutdown().await.unwrap();
}

async fn a_row_of_a_standby_is_due<DB: TestDatabase>(db: Fresh<DB>) {
    if is_pooled(&db).await {
        return;
    }
    // The active node has no listener for the event, so that it does not claim the row.
    let (ours, theirs) = (CallLog::default(), CallLog::default());
    let active = node(&db, &ours)
        .listeners(listen(ListenerRegistry::new(), "Other", |_: Delivery| async {}))
        .start()
        .await
        .unwrap();
    let standby = node(&db, &theirs).start().await.unwrap();
    write(&standby, &[event("A")]).await;
    let row = first_row(&db, &standby).await;
    assert_eq!((row.status, row.token, row.locked_by), (Status::New, 0, None));
    active.shutdown().await.unwrap();
    theirs.wait_for(1).await;
    standby.shutdown().await.unwrap();
}

async fn a_paused_node_lets_another_one_deliver<DB: TestDatabase>(db: Fresh<DB>) {
    if is_pooled(&db).await {
        return;
    }
    let (ours, theirs) = (CallLog::default(), CallLog::default());
    let first = node(&db, &ours).start().await.unwrap();
    let second = node(&db, &theirs).start().await.unwrap();
    first.pause().unwrap();
    assert!(!first.is_active());
    write(&first, &[event("A")]).await;
    theirs.wait_for(1).await;
    assert!(second.is_active());
    first.resume().unwrap();
    second.shutdown().await.unwrap();
    eventually("it is active again", async || first.is_active()).await;
    write(&first, &[event("B")]).await;
    ours.wait_for(1).await;
    first.shutdown().await.unwrap();
}

async fn each_table_has_a_relay_of_its_own<DB: TestDatabase>(db: Fresh<DB>) {
    if is_pooled(&db).await {
        return;
    }
    let received = CallLog::default();
    let first = node(&db, &received).start().await.unwrap();
    let second = node(&db, &received).table("other_event").start().await.unwrap();
    assert_eq!((first.is_active(), second.is_active()), (true, true));
    let third = node(&db, &received).table("other_event").start().await.unwrap();
    assert!(!third.is_active());
    for outbox in [first, second, third] {
        outbox.shutdown().await.unwrap();
    }
}

/// The lock has a connection of its own, so that the size of the application's pool does not matter.
async fn a_pool_of_one_connection_suffices<DB: TestDatabase>(db: Fresh<DB>) {
    if is_pooled(&db).await {
        return;
    }
    let options = (*db.pool.connect_options()).clone();
    let pool = PoolOptions::<DB>::new().max_connections(1).connect_with(options).await.unwrap();
    let received = CallLog::default();
    let outbox = outbox::builder(pool)
        .listeners(recording_listeners(&received))
        .relay(Relay::SingleActive)
        .start()
        .await
        .unwrap();
    assert!(outbox.is_active());
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    a_standby_writes_what_the_active_node_delivers,
    a_row_of_a_standby_is_due,
    a_paused_node_lets_another_one_deliver,
    each_table_has_a_relay_of_its_own,
    a_pool_of_one_connection_suffices,
);

#[tokio::test]
async fn a_lease_table_that_cannot_be_created_is_a_fault_with_its_sql() {
    let db = Fresh::<Sqlite>::new().await.expect("SQLite");
    db.store().await;
    let options = (*db.pool.connect_options()).clone().read_only(true);
    let pool = PoolOptions::<Sqlite>::new().connect_with(options).await.unwrap();
    let refused = outbox::builder(pool)
        .listeners(recording_listeners(&CallLog::default()))
        .relay(Relay::SingleActive)
        .start()
        .await
        .unwrap_err();
    assert!(matches!(refused, outbox::Error::Start(_)), "{refused:?}");
    let refused = refused.to_string();
    let sql = "CREATE TABLE IF NOT EXISTS \"outbox_relay\" (";
    assert!(refused.contains("table `outbox_relay`") && refused.contains(sql), "{refused}");
}

#[tokio::test]
async fn a_database_in_memory_has_one_process() {
    let pool =
        PoolOptions::<Sqlite>::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    let received = CallLog::default();
    let outbox = outbox::builder(pool)
        .listeners(recording_listeners(&received))
        .relay(Relay::SingleActive)
        .start()
        .await
        .unwrap();
    assert!(outbox.is_active());
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();
}
