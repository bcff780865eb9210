//! Several nodes, and leases that expire.

use std::sync::Arc;
use std::time::Duration;

use outbox::event::Status;
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry, Timeout};
use outbox::{EventEnvelope, ListenerError, Outcome};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};
use tokio::sync::Semaphore;

use crate::harness::{
    CountingMetrics, HOUR, blocking_listener, first_row, listen, locked_rows, manual_poll,
    recording_listeners, with_status, write,
};

async fn a_running_listener_keeps_its_lease<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let second = Duration::from_secs(1);
    let first = manual_poll(&db, blocking_listener(&received, &semaphore))
        .lease(second)
        .start()
        .await
        .unwrap();
    let other = CallLog::default();
    let second_node = outbox::builder(db.pool.clone())
        .listeners(recording_listeners(&other))
        .poll_interval(Duration::from_millis(50))
        .lease(second)
        .start()
        .await
        .unwrap();
    write(&first, &[event("A")]).await;
    let called = received.wait_for(1).await[0].at;
    eventually("three leases have passed", async || called.elapsed() > 3 * second).await;
    assert_eq!(other.count(), 0);
    semaphore.add_permits(1);
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    let row = first_row(&db, &first).await;
    assert_eq!((row.token, row.takeovers, received.count(), other.count()), (1, 0, 1, 0));
    second_node.shutdown().await.unwrap();
}

async fn a_late_settlement_changes_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore, counted) =
        (CallLog::default(), Arc::new(Semaphore::new(0)), CountingMetrics::default());
    let slow = manual_poll(&db, blocking_listener(&received, &semaphore))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    write(&slow, &[event("A")]).await;
    received.wait_for(1).await;
    // The node claims nothing, and seems lost for longer than its lease; another one takes over and
    // fails permanently.
    slow.pause().unwrap();
    (&db, slow.store()).age(Duration::from_secs(40)).await;
    let failing = listen(ListenerRegistry::new(), "A", |_: Delivery| async {
        Err::<(), _>(ListenerError::permanent("impossible"))
    });
    let other = manual_poll(&db, failing).start().await.unwrap();
    eventually("the other node has settled it", async || with_status(&db, 3).await == 1).await;
    semaphore.add_permits(1);
    eventually("the late settlement is stale", async || counted.stale() == 1).await;
    let row = first_row(&db, &slow).await;
    assert_eq!((row.status, row.token, row.attempts), (Status::Dead, 2, 1));
    other.shutdown().await.unwrap();
}

async fn a_running_event_is_reclaimed_and_not_run_twice<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore, counted) =
        (CallLog::default(), Arc::new(Semaphore::new(0)), CountingMetrics::default());
    let outbox = manual_poll(&db, blocking_listener(&received, &semaphore))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    (&db, outbox.store()).age(Duration::from_secs(40)).await;
    outbox.poll_once().await.unwrap();
    eventually("the node has reclaimed its own row", async || {
        first_row(&db, &outbox).await.token == 2
    })
    .await;
    semaphore.add_permits(5);
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    assert_eq!((received.count(), counted.stale()), (1, 0), "settled with the new token");
}

async fn queued_events_are_released_after_a_lease<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let busy = manual_poll(&db, blocking_listener(&received, &semaphore))
        .workers(1)
        .lease(Duration::from_secs(2))
        .start()
        .await
        .unwrap();
    let events: Vec<EventEnvelope> = (0..5).map(|_| event("A")).collect();
    write(&busy, &events).await;
    received.wait_for(1).await;
    let other = CallLog::default();
    let idle = outbox::builder(db.pool.clone())
        .listeners(recording_listeners(&other))
        .poll_interval(Duration::from_millis(20))
        .start()
        .await
        .unwrap();
    // The busy node may reclaim one or two, but it cannot keep them.
    other.wait_for(4).await;
    semaphore.add_permits(9);
    eventually("all are done", async || with_status(&db, 1).await == 5).await;
    assert_eq!(received.count() + other.count(), 5);
    assert_eq!(first_row(&db, &busy).await.attempts, 0);
    idle.shutdown().await.unwrap();
}

async fn an_event_that_repeatedly_loses_its_owner_becomes_dead<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, store) = (CallLog::default(), db.store().await);
    let sequence = (&db, &store).insert_due(&[event("A")]).await[0].sequence;
    db.run(
        "UPDATE outbox_event SET takeovers = 4, claim_token = 5, locked_by = 'gone', \
         attempts = 2",
    )
    .await;
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    let row = (&db, outbox.store()).row(sequence).await;
    assert_eq!(row.last_error.as_deref(), Some("owner lost 5 times"));
    assert_eq!((row.attempts, received.count()), (2, 0));
}

/// A deferral spends no attempt, so it must not reset the take-overs: an event that crashes every second
/// process that runs it would never become dead.
async fn an_event_that_defers_between_crashes_becomes_dead<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let recorded = received.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        async { Ok::<_, ListenerError>(Outcome::RetryAfter(HOUR)) }
    });
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    let deferred = async |calls: usize| {
        received.wait_for(calls).await;
        eventually("it is deferred", async || locked_rows(&db).await == 0).await;
    };
    deferred(1).await;
    let again = async || {
        (&db, outbox.store()).age(2 * HOUR).await;
        outbox.poll_once().await.unwrap();
    };
    let mut losses = 0;
    while with_status(&db, 3).await == 0 {
        losses += 1;
        assert!(losses <= 5, "it should have been dead by now");
        // Another process starts an attempt, records that if the event is a suspect, and crashes.
        db.run(
            "UPDATE outbox_event SET locked_by = 'gone', claim_token = claim_token + 1, \
             takeovers = CASE WHEN takeovers > 0 THEN takeovers + 1 ELSE 0 END",
        )
        .await;
        again().await;
        eventually("it is deferred, or dead", async || locked_rows(&db).await == 0).await;
        let takeovers = first_row(&db, &outbox).await.takeovers;
        // The process survived each deferral, so a deferral does not raise the take-overs either.
        for call in 1..=3 * usize::from(losses == 1) {
            let calls = received.count() + 1;
            again().await;
            deferred(calls).await;
            let row = first_row(&db, &outbox).await;
            assert_eq!(row.takeovers, takeovers, "deferral {call} after a loss");
        }
    }
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.attempts, row.last_error.as_deref()), (0, Some("owner lost 5 times")));
    assert_eq!(losses, 4, "the first loss counts twice if a deferral follows");
    outbox.shutdown().await.unwrap();
}

async fn an_unreadable_row_does_not_affect_others<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, store) = (CallLog::default(), db.store().await);
    let rows = (&db, &store).insert_due(&[event("A"), event("B"), event("C")]).await;
    let second = rows[1].sequence;
    db.run(format!("UPDATE outbox_event SET headers = '[1]' WHERE sequence = {second}")).await;
    let outbox = manual_poll(&db, recording_listeners(&received)).workers(1).start().await.unwrap();
    received.wait_for(2).await;
    outbox.drained().await.unwrap();
    assert_eq!(received.types(), ["A", "C"]);
    let row = (&db, outbox.store()).row(second).await;
    assert_eq!(row.status, Status::Dead);
    assert!(row.last_error.unwrap().contains("headers"));
}

async fn a_shutdown_releases_all_rows_immediately<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let mut config = outbox::Config::default();
    config.workers = 2;
    config.drain_timeout = Duration::from_millis(50);
    config.poll_interval = HOUR;
    let leaving = outbox::builder(db.pool.clone())
        .config(config)
        .listeners(blocking_listener(&received, &semaphore))
        .start()
        .await
        .unwrap();
    let events: Vec<EventEnvelope> = (0..20).map(|_| event("A")).collect();
    write(&leaving, &events).await;
    received.wait_for(2).await;
    // A transaction that is open during the shutdown commits afterwards.
    let mut late = leaving.begin().await.unwrap();
    late.write(event("A")).unwrap();
    if DB::URL_VARIABLE.is_none() {
        // SQLite has one writer, and the shutdown needs to write.
        late.commit().await.unwrap();
        leaving.shutdown().await.unwrap();
    } else {
        leaving.shutdown().await.unwrap();
        late.commit().await.unwrap();
    }
    assert_eq!(locked_rows(&db).await, 0, "nothing stays locked");
    assert_eq!(first_row(&db, &leaving).await.attempts, 0);
    let other = CallLog::default();
    let next = manual_poll(&db, recording_listeners(&other)).start().await.unwrap();
    other.wait_for(21).await;
    other.assert_each_once(21);
    next.shutdown().await.unwrap();
}

async fn a_slow_listener_does_not_delay_others<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let (recorded, blocking_listener) = (received.clone(), Arc::clone(&semaphore));
    let slow = ListenerOptions::new().concurrency(2).timeout(Timeout::Never);
    let registry = recording_listeners(&received).register_with(
        slow,
        "Order",
        "Slow",
        move |delivery: Delivery| {
            recorded.record(&delivery);
            let semaphore = Arc::clone(&blocking_listener);
            async move {
                let _ = semaphore.acquire().await;
            }
        },
    );
    let outbox = manual_poll(&db, registry).workers(3).start().await.unwrap();
    let events: Vec<EventEnvelope> =
        (0..30).map(|number| event(if number % 3 == 0 { "A" } else { "Slow" })).collect();
    write(&outbox, &events).await;
    eventually("the fast events are done", async || with_status(&db, 1).await == 10).await;
    assert_eq!(received.types().iter().filter(|name| *name == "Slow").count(), 2);
    semaphore.add_permits(100);
    eventually("all are done", async || with_status(&db, 1).await == 30).await;
    received.assert_each_once(30);
}

on_every_database!(
    a_running_listener_keeps_its_lease,
    a_late_settlement_changes_nothing,
    a_running_event_is_reclaimed_and_not_run_twice,
    queued_events_are_released_after_a_lease,
    an_event_that_repeatedly_loses_its_owner_becomes_dead,
    an_event_that_defers_between_crashes_becomes_dead,
    an_unreadable_row_does_not_affect_others,
    a_shutdown_releases_all_rows_immediately,
    a_slow_listener_does_not_delay_others,
);
