//! Notifications between nodes, on PostgreSQL.

use std::time::{Duration, Instant};

use outbox::config::Mode;
use outbox_tests::{CallLog, Fresh, Log, event, eventually};
use sqlx::Postgres;

use crate::harness::{manual_poll, recording_listeners, write};

const LISTENERS: &str = "SELECT COUNT(*) FROM pg_stat_activity \
    WHERE datname = current_database() AND query LIKE 'LISTEN%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_wakes_other_nodes() {
    let Some(db) = Fresh::<Postgres>::new().await else { return };
    if db.is_pooled().await {
        // Notifications do not arrive; see the next test.
        return;
    }
    let received = CallLog::default();
    // Its poll interval is an hour.
    let worker = manual_poll(&db, recording_listeners(&received)).notify().start().await.unwrap();
    let producer =
        outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).notify().start().await.unwrap();
    eventually("it listens", async || db.number(LISTENERS).await == 1).await;
    worker.drained().await.unwrap();
    let mut waits = Vec::new();
    for round in 1..=21 {
        write(&producer, &[event("A")]).await;
        let committed = Instant::now();
        let calls = received.wait_for(round).await;
        waits.push(calls[round - 1].at.saturating_duration_since(committed));
    }
    waits.sort();
    println!("from the commit to another node: median {:?}, worst {:?}", waits[10], waits[20]);
    assert!(waits[10] < Duration::from_millis(50), "{waits:?}");

    // The LISTEN connection is lost and re-established.
    db.run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
         WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    )
    .await;
    write(&producer, &[event("B")]).await;
    received.wait_for(22).await;
    eventually("it listens again", async || db.number(LISTENERS).await == 1).await;
    write(&producer, &[event("C")]).await;
    received.wait_for(23).await;
    producer.shutdown().await.unwrap();
    worker.shutdown().await.unwrap();
}

/// Behind a connection pooler in transaction mode no notification arrives: this is logged, and the poller finds the
/// events.
#[tokio::test]
async fn lost_notifications_are_logged() {
    let Some(db) = Fresh::<Postgres>::new().await else { return };
    let (log, _log) = Log::capture();
    let received = CallLog::default();
    let worker =
        outbox::builder(db.pool.clone()).listeners(recording_listeners(&received)).notify();
    let worker = worker.start().await.unwrap();
    let producer = outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).notify();
    let producer = producer.start().await.unwrap();
    write(&producer, &[event("A")]).await;
    received.wait_for(1).await;
    let warnings = || log.with("a notification did not arrive").len();
    if db.is_pooled().await {
        eventually("the warning is logged", async || warnings() > 0).await;
    } else {
        // The heartbeat is sent only after the node has received its own notification.
        let waits = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND query = 'SELECT 1'";
        eventually("its own notification has arrived", async || db.number(waits).await == 1).await;
    }
    producer.shutdown().await.unwrap();
    worker.shutdown().await.unwrap();
    assert_eq!(warnings() > 0, db.is_pooled().await);
}
