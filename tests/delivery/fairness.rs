//! A slow listener next to a fast one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::config::Mode;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{Config, EventEnvelope};
use outbox_tests::{CallLog, Fresh, TestDatabase, event, on_every_database};
use tokio::sync::Semaphore;

use crate::harness::{CountingMetrics, HOUR, blocking_listener, write};

/// Number of events for the slow listener.
const SLOW: usize = 400;

/// Adds a listener for `Fast` that returns immediately.
fn with_fast(registry: ListenerRegistry, fast: &CallLog) -> ListenerRegistry {
    let fast = fast.clone();
    registry.register_for("Order", "Fast", move |delivery: Delivery| {
        fast.record(&delivery);
        async {}
    })
}

/// The calls of one listener do not return; the events of another one, written later, are delivered
/// nevertheless, one after the other.
async fn deliver_next_to_a_stuck_listener<DB: TestDatabase>(
    db: Fresh<DB>,
    mode: Mode,
    capacity: usize,
) {
    let (slow, fast, semaphore) =
        (CallLog::default(), CallLog::default(), Arc::new(Semaphore::new(0)));
    let mut config = Config::default();
    (config.mode, config.poll_interval) = (mode, HOUR);
    (config.hot_capacity, config.cold_capacity) = (capacity, capacity);
    let counted = CountingMetrics::default();
    let outbox = outbox::builder(db.pool.clone())
        .config(config)
        .listeners(with_fast(blocking_listener(&slow, &semaphore), &fast))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    let backlog: Vec<EventEnvelope> = (0..SLOW).map(|_| event("A")).collect();
    for chunk in backlog.chunks(100) {
        write(&outbox, chunk).await;
    }
    slow.wait_for(28).await;
    let mut waited = Vec::new();
    for served in 1..=3 {
        let written = Instant::now();
        write(&outbox, &[event("Fast")]).await;
        let calls = fast.wait_for(served).await;
        waited.push(calls[served - 1].at - written);
    }
    println!("{} {mode:?}, capacity {capacity}: after {waited:?}", DB::SHORT_NAME);
    assert_eq!(slow.count(), 28, "an eighth of the 32 workers is reserved for others");
    assert!(waited.iter().max() < Some(&Duration::from_secs(5)), "{waited:?}");
    semaphore.close();
    slow.wait_for(SLOW).await;
    outbox.drained().await.unwrap();
    slow.assert_each_once(SLOW);
    fast.assert_each_once(3);
    assert_eq!(counted.stale(), 0);
    outbox.shutdown().await.unwrap();
}

async fn a_stuck_listener_leaves_workers_for_hot_events<DB: TestDatabase>(db: Fresh<DB>) {
    deliver_next_to_a_stuck_listener(db, Mode::Full, 1_000).await;
}

async fn a_stuck_listener_leaves_workers_for_polled_events<DB: TestDatabase>(db: Fresh<DB>) {
    deliver_next_to_a_stuck_listener(db, Mode::PollerOnly, 1_000).await;
}

async fn a_stuck_listener_leaves_capacity_in_the_hot_queue<DB: TestDatabase>(db: Fresh<DB>) {
    deliver_next_to_a_stuck_listener(db, Mode::Full, 64).await;
}

async fn a_stuck_listener_leaves_capacity_in_the_cold_queue<DB: TestDatabase>(db: Fresh<DB>) {
    deliver_next_to_a_stuck_listener(db, Mode::PollerOnly, 64).await;
}

async fn a_single_listener_can_use_every_worker<DB: TestDatabase>(db: Fresh<DB>) {
    let (slow, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let outbox = crate::harness::manual_poll(&db, blocking_listener(&slow, &semaphore))
        .workers(4)
        .start()
        .await
        .unwrap();
    let events: Vec<EventEnvelope> = (0..8).map(|_| event("A")).collect();
    write(&outbox, &events).await;
    slow.wait_for(4).await;
    semaphore.close();
    slow.wait_for(8).await;
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    a_stuck_listener_leaves_workers_for_hot_events,
    a_stuck_listener_leaves_workers_for_polled_events,
    a_stuck_listener_leaves_capacity_in_the_hot_queue,
    a_stuck_listener_leaves_capacity_in_the_cold_queue,
    a_single_listener_can_use_every_worker,
);
