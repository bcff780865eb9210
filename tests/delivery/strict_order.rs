//! The preset for strict order: one event at a time, by sequence, by one process at a time.

use std::sync::Arc;
use std::time::Duration;

use outbox::config::Relay;
use outbox::error::StartFault;
use outbox::event::Status;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{Builder, Error};
use outbox_runtime::store::{ClaimRequest, Lease, Quota, StoreOf, TypeFilter};
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};

use tokio::sync::Semaphore;

use crate::harness::{HOUR, listen, manual_poll, with_status, write};

/// Listeners that record every call; the one of `Failing` fails.
fn listeners(received: &CallLog) -> ListenerRegistry {
    let recorded = received.clone();
    let registry = listen(ListenerRegistry::new(), "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        async {}
    });
    let recorded = received.clone();
    listen(registry, "Failing", move |delivery: Delivery| {
        recorded.record(&delivery);
        async { Err::<(), _>(std::io::Error::other("no")) }
    })
}

fn node<DB: TestDatabase>(db: &Fresh<DB>, received: &CallLog) -> Builder<DB> {
    manual_poll(db, listeners(received))
        .strictly_ordered()
        .poll_interval(Duration::from_millis(20))
        .drain_timeout(Duration::ZERO)
}

/// Asserts that every event was delivered once, in the order in which they were written.
async fn assert_in_sequence<DB: TestDatabase>(db: &Fresh<DB>, received: &CallLog) {
    let written = db.texts("SELECT event_id FROM outbox_event ORDER BY sequence").await;
    let written: Vec<String> = written.into_iter().map(|[id]| id).collect();
    let delivered: Vec<String> = received.calls().into_iter().map(|call| call.event_id).collect();
    assert_eq!(delivered, written);
}

async fn a_failed_event_does_not_stop_the_next_one<DB: TestDatabase>(db: Fresh<DB>) {
    if db.is_pooled().await {
        return;
    }
    let received = CallLog::default();
    let outbox = node(&db, &received).batch_size(7).start().await.unwrap();
    for number in 0..30 {
        let name = if number == 15 { "Failing" } else { "A" };
        write(&outbox, &[event(name), event("A")]).await;
    }
    received.wait_for(60).await;
    outbox.drained().await.unwrap();
    assert_in_sequence(&db, &received).await;
    assert_eq!((with_status(&db, 3).await, with_status(&db, 1).await), (1, 59));
    outbox.shutdown().await.unwrap();
}

/// A listener whose calls wait for a permit, so that there is a backlog.
fn gated(received: &CallLog, permits: &Arc<Semaphore>) -> ListenerRegistry {
    let (received, permits) = (received.clone(), Arc::clone(permits));
    listen(ListenerRegistry::new(), "A", move |delivery: Delivery| {
        let (received, permits) = (received.clone(), Arc::clone(&permits));
        async move {
            permits.acquire().await.unwrap().forget();
            received.record(&delivery);
        }
    })
}

async fn a_pause_keeps_the_order<DB: TestDatabase>(db: Fresh<DB>) {
    if db.is_pooled().await {
        return;
    }
    let (received, permits) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let node = node(&db, &received).listeners(gated(&received, &permits)).batch_size(20);
    let outbox = node.start().await.unwrap();
    let events: Vec<_> = (0..60).map(|_| event("A")).collect();
    write(&outbox, &events).await;
    permits.add_permits(1);
    received.wait_for(1).await;
    // The second event runs, and those behind it are given back.
    outbox.pause().unwrap();
    outbox.resume().unwrap();
    permits.add_permits(59);
    received.wait_for(60).await;
    outbox.drained().await.unwrap();
    assert_in_sequence(&db, &received).await;
    outbox.shutdown().await.unwrap();
}

async fn a_strict_order_and_another_on_one_table_are_refused<DB: TestDatabase>(db: Fresh<DB>) {
    if db.is_pooled().await {
        return;
    }
    let received = CallLog::default();
    let others = [
        (node(&db, &received).workers(4), "a single active relay"),
        (node(&db, &received).relay(Relay::Shared), "a shared relay"),
    ];
    let strict = node(&db, &received).start().await.unwrap();
    for (other, relay) in others {
        let Err(Error::Start(error)) = other.start().await else { panic!("it was started") };
        let [StartFault::DifferentRelay { running, relay: with, .. }] = error.faults() else {
            panic!("{error}")
        };
        assert_eq!((*running, *with), ("strictly ordered events", relay));
        let text = error.to_string();
        assert_eq!(text.matches("(built at tests/delivery/").count(), 2, "{text}");
    }
    node(&db, &received).start().await.unwrap().shutdown().await.unwrap();
    strict.shutdown().await.unwrap();
}

async fn another_node_continues_in_order<DB: TestDatabase>(db: Fresh<DB>) {
    if db.is_pooled().await {
        return;
    }
    let (received, permits) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let listeners = || gated(&received, &permits);
    let node = || node(&db, &received).listeners(listeners()).batch_size(20).start();
    let (first, second) = (node().await.unwrap(), node().await.unwrap());
    for round in 0..50 {
        let writer = if round % 2 == 0 { &first } else { &second };
        write(writer, &[event("A"), event("A")]).await;
    }
    permits.add_permits(30);
    received.wait_for(30).await;
    assert!(first.is_active() && !second.is_active());
    // Its queue is given back, and does not go behind the others.
    first.shutdown().await.unwrap();
    assert_eq!(received.count(), 30);
    eventually("the second takes over", async || second.is_active()).await;
    permits.add_permits(70);
    received.wait_for(100).await;
    second.drained().await.unwrap();
    second.shutdown().await.unwrap();
    assert_in_sequence(&db, &received).await;
}

async fn events_of_a_lost_node_go_first<DB: TestDatabase>(db: Fresh<DB>) {
    if db.is_pooled().await {
        return;
    }
    let (received, store) = (CallLog::default(), db.store().await);
    let events: Vec<_> = (0..20).map(|_| event("A")).collect();
    (&db, &store).insert_due(&events).await;
    let claimed = store
        .claim(ClaimRequest {
            lease: Lease { owner: "lost", length: HOUR },
            types: &TypeFilter::ALL,
            status: Status::New,
            quota: Quota { rows: 5, after: None, until: None },
            bytes: usize::MAX,
            skip_recent: Duration::ZERO,
        })
        .await
        .unwrap();
    assert_eq!(claimed.rows.len(), 5);
    let outbox = node(&db, &received).batch_size(4).start().await.unwrap();
    received.wait_for(20).await;
    outbox.drained().await.unwrap();
    assert_in_sequence(&db, &received).await;
    assert_eq!((&db, outbox.store()).count().await, 20);
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    a_failed_event_does_not_stop_the_next_one,
    a_pause_keeps_the_order,
    a_strict_order_and_another_on_one_table_are_refused,
    another_node_continues_in_order,
    events_of_a_lost_node_go_first,
);
