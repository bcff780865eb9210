//! Nodes with a limited mode, and events that a node does not handle.

use std::time::Duration;

use outbox::config::{Mode, Unroutable};
use outbox::event::Status;
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry, Timeout};
use outbox::metrics::Lane;
use outbox::{Config, Error};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};

use crate::harness::{
    CountingMetrics, HOUR, first_row, insert_due, locked_rows, manual_poll, recording_listeners,
    with_status, write,
};

async fn a_poller_only_node_has_no_hot_path<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, counted) = (CallLog::default(), CountingMetrics::default());
    let outbox = manual_poll(&db, recording_listeners(&received))
        .mode(Mode::PollerOnly)
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A"), event("B")]).await;
    // The commit wakes its own poller.
    received.wait_for(2).await;
    assert_eq!((counted.enqueued(Lane::Hot), counted.enqueued(Lane::Cold)), (0, 2));
}

async fn a_writer_only_node_needs_no_listeners<DB: TestDatabase>(db: Fresh<DB>) {
    let producer = outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).start().await.unwrap();
    write(&producer, &[event("A")]).await;
    assert!(matches!(producer.poll_once().await, Err(Error::WriterOnly)));
    assert!(matches!(producer.drained().await, Err(Error::WriterOnly)));
    let row = first_row(&db, &producer).await;
    assert_eq!((row.status, row.token, row.locked_by), (Status::New, 0, None));
    let received = CallLog::default();
    let worker = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    received.wait_for(1).await;
    producer.shutdown().await.unwrap();
    worker.shutdown().await.unwrap();
}

async fn an_unknown_event_waits_for_a_node_that_handles_it<DB: TestDatabase>(db: Fresh<DB>) {
    let (old_received, new_received) = (CallLog::default(), CallLog::default());
    let interval = Duration::from_millis(20);
    let old = outbox::builder(db.pool.clone())
        .listeners(recording_listeners(&old_received))
        .poll_interval(interval)
        .start()
        .await
        .unwrap();
    // Through the hot queue and the cold queue.
    write(&old, &[event("New"), event("A")]).await;
    (&db, old.store()).insert_due(&[event("New"), event("B")]).await;
    old_received.wait_for(2).await;
    old.drained().await.unwrap();
    let row = first_row(&db, &old).await;
    assert_eq!((row.status, row.token, row.attempts), (Status::New, 0, 0), "it is not claimed");
    let recorded = new_received.clone();
    let registry =
        ListenerRegistry::new().register_for("Order", "New", move |delivery: Delivery| {
            recorded.record(&delivery);
            async {}
        });
    let new = outbox::builder(db.pool.clone())
        .listeners(registry)
        .poll_interval(interval)
        .start()
        .await
        .unwrap();
    new_received.wait_for(2).await;
    new.drained().await.unwrap();
    assert_eq!(with_status(&db, 1).await, 4);
    old_received.assert_each_once(2);
    new_received.assert_each_once(2);
}

async fn unknown_events_do_not_slow_down_claims<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let mut medians = Vec::new();
    db.store().await;
    for unknown in [0, 100_000] {
        if unknown > 0 {
            db.fill("Unknown", 0, 1, unknown).await;
            db.run(DB::ANALYZE).await;
        }
        let counted = CountingMetrics::default();
        let outbox = manual_poll(&db, recording_listeners(&received))
            .mode(Mode::PollerOnly)
            .metrics(counted.clone())
            .start()
            .await
            .unwrap();
        outbox.drained().await.unwrap();
        for _ in 0..60 {
            let before = received.count();
            write(&outbox, &[event("A")]).await;
            received.wait_for(before + 1).await;
        }
        medians.push(counted.median_claim());
        outbox.shutdown().await.unwrap();
    }
    println!(
        "{}: a claim takes {:?}, with 100,000 unknown {:?}",
        DB::SHORT_NAME,
        medians[0],
        medians[1]
    );
    assert!(medians[1] < 2 * medians[0] + Duration::from_millis(2), "{medians:?}");
}

async fn unroutable_events_can_become_dead_immediately<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received))
        .unroutable(Unroutable::Dead)
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("Unknown"), event("A")]).await;
    (&db, outbox.store()).insert_due(&[event("Unknown"), event("B")]).await;
    outbox.poll_once().await.unwrap();
    received.wait_for(2).await;
    eventually("both are dead", async || with_status(&db, 3).await == 2).await;
    let row = first_row(&db, &outbox).await;
    let error = "no listener handles `Unknown` of aggregate `Order`";
    assert_eq!((row.attempts, row.last_error.as_deref()), (0, Some(error)));
}

/// Listeners can be unavailable for long: paused by their breakers, or at their limit.
async fn unroutable_events_become_dead_while_listeners_are_at_their_limit<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    db.store().await;
    for others in [false, true] {
        db.run("DELETE FROM outbox_event").await;
        let (stuck, received) = (CallLog::default(), CallLog::default());
        let registry =
            if others { recording_listeners(&received) } else { ListenerRegistry::new() };
        let one = ListenerOptions::new().concurrency(1).timeout(Timeout::Never);
        let recorded = stuck.clone();
        let registry = registry.register_with(one, "Order", "Stuck", move |delivery: Delivery| {
            recorded.record(&delivery);
            std::future::pending::<()>()
        });
        let mut config = Config::default();
        (config.unroutable, config.poll_interval) = (Unroutable::Dead, HOUR);
        (config.cold_capacity, config.drain_timeout) = (64, Duration::ZERO);
        let builder = outbox::builder(db.pool.clone()).config(config).listeners(registry);
        let outbox = builder.start().await.unwrap();
        insert_due(&db, &outbox, &["Stuck"; 40]).await;
        let claimed = async || {
            outbox.poll_once().await.unwrap();
            locked_rows(&db).await
        };
        // It is at its limit when a poll claims no more rows.
        eventually("the listener is at its limit", async || {
            let before = locked_rows(&db).await;
            before > 0 && claimed().await == before
        })
        .await;
        assert!(claimed().await < 40);
        // Some below the low watermark, and some above.
        let rows = insert_due(&db, &outbox, &["Unknown"; 3]).await;
        let age = DB::AGE.replace("{table}", "outbox_event").replace("{micros}", "3600000000");
        db.run(format!("{age} WHERE sequence = {}", rows[0])).await;
        outbox.poll_once().await.unwrap();
        eventually("they are dead", async || with_status(&db, 3).await == 3).await;
        assert_eq!(stuck.count(), 1, "no further call was made");
        outbox.shutdown().await.unwrap();
        assert_eq!(with_status(&db, 0).await, 40, "the other events are unchanged");
    }
}

async fn two_outboxes_can_share_a_table_in_one_process<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let first = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    let second = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    for number in 0..50 {
        write(if number % 2 == 0 { &first } else { &second }, &[event("A")]).await;
    }
    received.wait_for(50).await;
    first.drained().await.unwrap();
    second.drained().await.unwrap();
    received.assert_each_once(50);
    first.shutdown().await.unwrap();
    write(&second, &[event("A")]).await;
    received.wait_for(51).await;
}

on_every_database!(
    a_poller_only_node_has_no_hot_path,
    a_writer_only_node_needs_no_listeners,
    an_unknown_event_waits_for_a_node_that_handles_it,
    unknown_events_do_not_slow_down_claims,
    unroutable_events_can_become_dead_immediately,
    unroutable_events_become_dead_while_listeners_are_at_their_limit,
    two_outboxes_can_share_a_table_in_one_process,
);
