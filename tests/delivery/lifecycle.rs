//! Pausing, stopping, dropping.

use std::sync::Arc;
use std::time::Duration;

use outbox::{Delivery, Error, EventEnvelope, ListenerRegistry, Status};
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};
use tokio::sync::Semaphore;

use crate::harness::{first_row, held, insert_due, listening, locked, quiet, with_status, write};

async fn a_pause_lets_go_of_everything<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, gate) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let registry = held(&received, &gate);
    let outbox = quiet(&db, registry).workers(1).start().await.unwrap();
    let events: Vec<EventEnvelope> = (0..10).map(|_| event("A")).collect();
    write(&outbox, &events).await;
    received.wait_for(1).await;
    outbox.pause().unwrap();
    eventually("only the running one is kept", async || locked(&db).await == 1).await;
    // Writing goes on, without seats.
    write(&outbox, &[event("A")]).await;
    gate.add_permits(1_000);
    outbox.drained().await.unwrap();
    assert_eq!((received.count(), with_status(&db, 1).await, locked(&db).await), (1, 1, 0));
    assert_eq!(outbox.poll_once().await.unwrap(), 0, "it is paused");
    outbox.resume().unwrap();
    received.wait_for(11).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(11);
}

async fn a_shutdown_waits_for_listeners<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, gate) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let registry = held(&received, &gate);
    let outbox = quiet(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A"), event("A")]).await;
    received.wait_for(2).await;
    let stopping = outbox.clone();
    let stopping = tokio::spawn(async move { stopping.shutdown().await });
    eventually("it is stopping", async || outbox.poll_once().await.is_err()).await;
    gate.add_permits(2);
    stopping.await.unwrap().unwrap();
    assert_eq!((with_status(&db, 1).await, locked(&db).await), (2, 0));
}

async fn a_shutdown_that_is_cut_short_can_be_called_again<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, gate) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let outbox = quiet(&db, held(&received, &gate)).workers(1).start().await.unwrap();
    write(&outbox, &[event("A"), event("A"), event("A")]).await;
    received.wait_for(1).await;
    for millis in [0, 1, 5, 20] {
        let cut = tokio::time::timeout(Duration::from_millis(millis), outbox.shutdown()).await;
        assert!(cut.is_err(), "it waits for the listener");
    }
    gate.add_permits(9);
    outbox.shutdown().await.unwrap();
    assert_eq!((with_status(&db, 1).await, locked(&db).await), (3, 0));
}

async fn a_poll_that_is_cut_short_loses_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = quiet(&db, listening(&received)).start().await.unwrap();
    for micros in (0..40).map(|round| round * 100) {
        insert_due(&db, &outbox, &["A", "B"]).await;
        let cut = Duration::from_micros(micros);
        let _ = tokio::time::timeout(cut, outbox.poll_once()).await;
        let _ = tokio::time::timeout(cut, outbox.drained()).await;
    }
    outbox.drained().await.unwrap();
    received.assert_each_once(80);
    // No row had to wait for a lease of somebody who had gone away.
    assert_eq!(db.number("SELECT MAX(claim_token) FROM outbox_event").await, 1);
    assert_eq!((with_status(&db, 1).await, locked(&db).await), (80, 0));
}

async fn after_a_shutdown_everything_has_a_clear_answer<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = quiet(&db, listening(&received)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    outbox.shutdown().await.unwrap();
    outbox.shutdown().await.unwrap();
    assert_eq!(received.count(), 1, "it was drained");
    assert!(matches!(outbox.poll_once().await, Err(Error::Closed)));
    assert!(matches!(outbox.drained().await, Err(Error::Closed)));
    assert!(matches!(outbox.pause(), Err(Error::Closed)));
    assert!(matches!(outbox.resume(), Err(Error::Closed)));
    // Requests that are still served can write; others will deliver.
    write(&outbox, &[event("B")]).await;
    assert_eq!((locked(&db).await, with_status(&db, 0).await), (0, 1));
}

async fn a_dropped_outbox_stops_like_a_crash<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let recorded = received.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        std::future::pending::<()>()
    });
    let outbox = quiet(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    let store = outbox.store().clone();
    // Without this its poller may just be claiming the row once more.
    outbox.pause().unwrap();
    drop(outbox);
    // Its lease ends, and the next one has it.
    (&db, &store).age(Duration::from_secs(31)).await;
    let other = CallLog::default();
    let next = quiet(&db, listening(&other)).start().await.unwrap();
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
    let outbox = quiet(&db, registry).max_attempts(1).start().await.unwrap();
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
    a_pause_lets_go_of_everything,
    a_shutdown_waits_for_listeners,
    a_shutdown_that_is_cut_short_can_be_called_again,
    a_poll_that_is_cut_short_loses_nothing,
    after_a_shutdown_everything_has_a_clear_answer,
    a_dropped_outbox_stops_like_a_crash,
    a_dead_event_can_be_replayed,
);
