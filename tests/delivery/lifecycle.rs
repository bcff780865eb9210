//! Pausing, shutting down and dropping an outbox.

use std::sync::Arc;
use std::time::Duration;

use outbox::event::Status;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{Error, EventEnvelope};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};
use tokio::sync::Semaphore;

use crate::harness::{
    blocking_listener, first_row, insert_due, locked_rows, manual_poll, recording_listeners,
    with_status, write,
};

async fn a_pause_releases_queued_events<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let registry = blocking_listener(&received, &semaphore);
    let outbox = manual_poll(&db, registry).workers(1).start().await.unwrap();
    let events: Vec<EventEnvelope> = (0..10).map(|_| event("A")).collect();
    write(&outbox, &events).await;
    received.wait_for(1).await;
    outbox.pause().unwrap();
    eventually("only the running event stays claimed", async || locked_rows(&db).await == 1).await;
    // Writing continues, without permits.
    write(&outbox, &[event("A")]).await;
    semaphore.add_permits(1_000);
    outbox.drained().await.unwrap();
    assert_eq!((received.count(), with_status(&db, 1).await, locked_rows(&db).await), (1, 1, 0));
    assert_eq!(outbox.poll_once().await.unwrap(), 0, "it is paused");
    outbox.resume().unwrap();
    received.wait_for(11).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(11);
}

async fn a_shutdown_waits_for_listeners<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let registry = blocking_listener(&received, &semaphore);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A"), event("A")]).await;
    received.wait_for(2).await;
    let stopping = outbox.clone();
    let stopping = tokio::spawn(async move { stopping.shutdown().await });
    eventually("it is stopping", async || outbox.poll_once().await.is_err()).await;
    semaphore.add_permits(2);
    stopping.await.unwrap().unwrap();
    assert_eq!((with_status(&db, 1).await, locked_rows(&db).await), (2, 0));
}

async fn a_cancelled_shutdown_can_be_called_again<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let outbox = manual_poll(&db, blocking_listener(&received, &semaphore))
        .workers(1)
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A"), event("A"), event("A")]).await;
    received.wait_for(1).await;
    for millis in [0, 1, 5, 20] {
        let cut = tokio::time::timeout(Duration::from_millis(millis), outbox.shutdown()).await;
        assert!(cut.is_err(), "it waits for the listener");
    }
    semaphore.add_permits(9);
    outbox.shutdown().await.unwrap();
    assert_eq!((with_status(&db, 1).await, locked_rows(&db).await), (3, 0));
}

async fn a_cancelled_poll_loses_no_event<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    for micros in (0..40).map(|round| round * 100) {
        insert_due(&db, &outbox, &["A", "B"]).await;
        let cut = Duration::from_micros(micros);
        let _ = tokio::time::timeout(cut, outbox.poll_once()).await;
        let _ = tokio::time::timeout(cut, outbox.drained()).await;
    }
    outbox.drained().await.unwrap();
    received.assert_each_once(80);
    // No row had to wait for the lease of a cancelled call.
    assert_eq!(db.number("SELECT MAX(claim_token) FROM outbox_event").await, 1);
    assert_eq!((with_status(&db, 1).await, locked_rows(&db).await), (80, 0));
}

async fn calls_after_a_shutdown_return_closed<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    outbox.shutdown().await.unwrap();
    outbox.shutdown().await.unwrap();
    assert_eq!(received.count(), 1, "it was drained");
    assert!(matches!(outbox.poll_once().await, Err(Error::Closed)));
    assert!(matches!(outbox.drained().await, Err(Error::Closed)));
    assert!(matches!(outbox.pause(), Err(Error::Closed)));
    assert!(matches!(outbox.resume(), Err(Error::Closed)));
    // Requests that are still running can write; other nodes deliver their events.
    write(&outbox, &[event("B")]).await;
    assert_eq!((locked_rows(&db).await, with_status(&db, 0).await), (0, 1));
}

async fn events_of_a_dropped_outbox_are_taken_over<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let recorded = received.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        std::future::pending::<()>()
    });
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    let store = outbox.store().clone();
    // Without this its poller might be reclaiming the row at this point.
    outbox.pause().unwrap();
    drop(outbox);
    // Its lease expires, and the next node takes over.
    (&db, &store).age(Duration::from_secs(31)).await;
    let other = CallLog::default();
    let next = manual_poll(&db, recording_listeners(&other)).start().await.unwrap();
    other.wait_for(1).await;
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    let row = first_row(&db, &next).await;
    assert_eq!((row.status, row.attempts, row.token), (Status::Done, 0, 2));
}

async fn a_dead_event_can_be_replayed<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let recorded = received.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        let first = recorded.count() == 1;
        async move { if first { Err("broken") } else { Ok(()) } }
    });
    let outbox = manual_poll(&db, registry).max_attempts(1).start().await.unwrap();
    insert_due(&db, &outbox, &["A"]).await;
    outbox.poll_once().await.unwrap();
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    let id = received.calls()[0].event_id.clone();
    outbox.dead_events().replay(id).await.unwrap();
    outbox.poll_once().await.unwrap();
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    assert_eq!(received.count(), 2);
}

on_every_database!(
    a_pause_releases_queued_events,
    a_shutdown_waits_for_listeners,
    a_cancelled_shutdown_can_be_called_again,
    a_cancelled_poll_loses_no_event,
    calls_after_a_shutdown_return_closed,
    events_of_a_dropped_outbox_are_taken_over,
    a_dead_event_can_be_replayed,
);
