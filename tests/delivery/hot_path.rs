//! The hot path: delivery directly after the commit.

use std::time::{Duration, SystemTime};

use outbox::event::Status;
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
use outbox::metrics::{HotPathSkip, Lane};
use outbox::{Config, EventEnvelope};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};

use crate::harness::{
    CountingMetrics, HOUR, first_row, locked_rows, manual_poll, recording_listeners, with_status,
    write,
};

async fn hot_events_are_delivered_without_polling<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, counted) = (CallLog::default(), CountingMetrics::default());
    let outbox = manual_poll(&db, recording_listeners(&received))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    for name in ["A", "B", "C"] {
        write(&outbox, &[event(name)]).await;
    }
    received.wait_for(3).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(3);
    assert_eq!((counted.enqueued(Lane::Hot), counted.enqueued(Lane::Cold)), (3, 0));
    let lags = counted.lags();
    assert!(lags.len() == 3 && lags.iter().all(|lag| *lag < HOUR), "{lags:?}");
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.token, row.locked_by, row.attempts), (Status::Done, 1, None, 0));
    outbox.shutdown().await.unwrap();
}

async fn a_past_delivery_time_is_no_delay<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, counted) = (CallLog::default(), CountingMetrics::default());
    let outbox = manual_poll(&db, recording_listeners(&received))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    let now = SystemTime::now();
    let order = || EventEnvelope::builder("A").aggregate_type("Order").payload_json("{}");
    let passed = [
        order().deliver_at(now - HOUR),
        order().deliver_at(now),
        // At its occurrence time, and before it.
        order().occurred_at(now - HOUR).deliver_at(now - HOUR),
        order().occurred_at(now - HOUR).deliver_at(SystemTime::UNIX_EPOCH),
    ];
    let passed = passed.map(|builder| builder.build().unwrap());
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all(passed).unwrap();
    tx.write(order().deliver_at(now - HOUR)).unwrap();
    tx.commit().await.unwrap();
    received.wait_for(5).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(5);
    let ways = [
        counted.enqueued(Lane::Hot),
        counted.skipped(HotPathSkip::Delayed),
        counted.enqueued(Lane::Cold),
    ];
    assert_eq!(ways, [5, 0, 0]);
    assert_eq!(with_status(&db, 1).await, 5);
}

async fn a_rolled_back_event_is_never_delivered<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    for _ in 0..5 {
        let mut tx = outbox.begin().await.unwrap();
        tx.write(event("A")).unwrap();
        tx.flush().await.unwrap();
        drop(tx);
    }
    write(&outbox, &[event("B")]).await;
    received.wait_for(1).await;
    outbox.drained().await.unwrap();
    assert_eq!(received.types(), ["B"]);
    assert_eq!((&db, outbox.store()).count().await, 1);
}

async fn no_event_is_lost_when_the_hot_queue_is_full<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, counted) = (CallLog::default(), CountingMetrics::default());
    let mut config = Config::default();
    config.hot_capacity = 1;
    config.poll_interval = HOUR;
    let outbox = outbox::builder(db.pool.clone())
        .config(config)
        .listeners(recording_listeners(&received))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    for _ in 0..100 {
        let burst: Vec<EventEnvelope> = (0..100).map(|_| event("A")).collect();
        write(&outbox, &burst).await;
    }
    received.wait_for(10_000).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(10_000);
    assert_eq!(with_status(&db, 1).await, 10_000);
    assert!(counted.skipped(HotPathSkip::Full) > 9_000, "{}", counted.skipped(HotPathSkip::Full));
    outbox.shutdown().await.unwrap();
}

async fn one_transaction_gets_at_most_a_quarter_of_the_hot_queue<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, counted) = (CallLog::default(), CountingMetrics::default());
    let outbox = manual_poll(&db, recording_listeners(&received))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    let burst: Vec<EventEnvelope> = (0..600).map(|_| event("A")).collect();
    write(&outbox, &burst).await;
    received.wait_for(600).await;
    received.assert_each_once(600);
    assert_eq!((counted.enqueued(Lane::Hot), counted.enqueued(Lane::Cold)), (250, 350));
}

async fn a_receipt_delivers_a_foreign_transaction_through_the_hot_path<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let (received, counted) = (CallLog::default(), CountingMetrics::default());
    let outbox = manual_poll(&db, recording_listeners(&received))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    for _ in 0..20 {
        let mut foreign = db.pool.begin().await.unwrap();
        let receipt = outbox.write_in(&mut foreign, event("A")).await.unwrap().unwrap();
        foreign.commit().await.unwrap();
        outbox.committed(receipt).await.unwrap();
    }
    received.wait_for(20).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(20);
    // The poller may sometimes be faster.
    assert!(counted.enqueued(Lane::Hot) > 10, "{}", counted.enqueued(Lane::Hot));
    assert_eq!(counted.enqueued(Lane::Hot) + counted.enqueued(Lane::Cold), 20);
}

async fn a_duplicate_id_is_delivered_once<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    let one = event("A");
    write(&outbox, std::slice::from_ref(&one)).await;
    write(&outbox, &[one.clone(), one]).await;
    write(&outbox, &[event("B")]).await;
    received.wait_for(2).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(2);
}

async fn a_stuck_listener_gets_only_its_share_of_permits<DB: TestDatabase>(db: Fresh<DB>) {
    // One call at a time, and it never returns: others must still be delivered.
    let received = CallLog::default();
    let stuck = received.clone();
    let registry = recording_listeners(&received).register_with(
        ListenerOptions::new().concurrency(1).timeout(outbox::listener::Timeout::Never),
        "Order",
        "Stuck",
        move |delivery: Delivery| {
            stuck.record(&delivery);
            std::future::pending::<()>()
        },
    );
    let outbox = manual_poll(&db, registry).workers(4).start().await.unwrap();
    let burst: Vec<EventEnvelope> = (0..2_000).map(|_| event("Stuck")).collect();
    for chunk in burst.chunks(100) {
        write(&outbox, chunk).await;
    }
    for _ in 0..50 {
        write(&outbox, &[event("A"), event("B")]).await;
    }
    eventually("the others are delivered", async || {
        received.types().iter().filter(|name| *name != "Stuck").count() == 100
    })
    .await;
    assert_eq!(received.types().iter().filter(|name| *name == "Stuck").count(), 1);
    // It claims only its share: the rest is left to other nodes.
    assert!(locked_rows(&db).await < 800, "{}", locked_rows(&db).await);
}

async fn a_stuck_listener_with_a_timeout_does_not_block_others<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let short = outbox::listener::Timeout::After(Duration::from_millis(50));
    let registry = recording_listeners(&received).register_with(
        ListenerOptions::new().timeout(short).max_attempts(1),
        "Order",
        "Stuck",
        |_: Delivery| std::future::pending::<()>(),
    );
    let outbox = manual_poll(&db, registry).workers(2).start().await.unwrap();
    let burst: Vec<EventEnvelope> = (0..20).map(|_| event("Stuck")).collect();
    write(&outbox, &burst).await;
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    outbox.drained().await.unwrap();
    assert_eq!((with_status(&db, 3).await, with_status(&db, 1).await), (20, 1));
    let row = first_row(&db, &outbox).await;
    assert_eq!(row.last_error.unwrap(), "the listener took longer than 50ms");
}

async fn large_payloads_are_delivered_within_max_bytes<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let mut config = Config::default();
    config.max_bytes = 3 * 1024 * 1024;
    config.poll_interval = HOUR;
    let registry = ListenerRegistry::new().register("Large", {
        let received = received.clone();
        move |delivery: Delivery| {
            received.record(&delivery);
            async {}
        }
    });
    let outbox =
        outbox::builder(db.pool.clone()).config(config).listeners(registry).start().await.unwrap();
    let payload = format!("\"{}\"", "x".repeat(900_000));
    for _ in 0..5 {
        let large = || EventEnvelope::json("Large", payload.clone()).unwrap();
        write(&outbox, &[large(), large(), large(), large()]).await;
    }
    received.wait_for(20).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(20);
    assert_eq!(with_status(&db, 1).await, 20);
}

on_every_database!(
    hot_events_are_delivered_without_polling,
    a_past_delivery_time_is_no_delay,
    a_rolled_back_event_is_never_delivered,
    no_event_is_lost_when_the_hot_queue_is_full,
    one_transaction_gets_at_most_a_quarter_of_the_hot_queue,
    a_receipt_delivers_a_foreign_transaction_through_the_hot_path,
    a_duplicate_id_is_delivered_once,
    a_stuck_listener_gets_only_its_share_of_permits,
    a_stuck_listener_with_a_timeout_does_not_block_others,
    large_payloads_are_delivered_within_max_bytes,
);
