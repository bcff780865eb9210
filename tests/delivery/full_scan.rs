//! Backlogs that a node cannot claim: events that it does not handle, and events of a listener at its limit.
//! Neither delays other events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
use outbox_tests::{CallLog, Fresh, TestDatabase, on_every_database};
use tokio::sync::Semaphore;

use super::harness::insert_due;

/// Returns the number of backlog rows; the long run uses the number seen in production.
fn backlog() -> u64 {
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { 2_000_000 } else { 100_000 }
}

/// Number of events whose latency is measured.
const TIMED: usize = 60;

/// Returns a listener for `A`, and one for `Limited` with two concurrent calls that never return.
fn listeners(received: &CallLog, stuck: &Arc<Semaphore>) -> ListenerRegistry {
    let (received, stuck) = (received.clone(), Arc::clone(stuck));
    let limited = ListenerOptions::new().concurrency(2);
    ListenerRegistry::new()
        .register_for("Order", "A", move |delivery: Delivery| {
            received.record(&delivery);
            async {}
        })
        .register_with(limited, "Order", "Limited", move |_: Delivery| {
            let stuck = Arc::clone(&stuck);
            async move {
                let _ = stuck.acquire().await;
            }
        })
}

/// Inserts events one after another, as another process would, and returns the median and the longest delivery
/// latency.
async fn latency<DB: TestDatabase>(db: &Fresh<DB>) -> (Duration, Duration) {
    let (received, stuck) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let builder = outbox::builder(db.pool.clone()).listeners(listeners(&received, &stuck));
    let builder = builder.lease(Duration::from_secs(1)).poll_interval(Duration::from_millis(50));
    let outbox = builder.start().await.unwrap();
    let mut times = Vec::with_capacity(TIMED);
    for count in 1..=TIMED {
        let begun = Instant::now();
        insert_due(db, &outbox, &["A"]).await;
        let calls = received.wait_for(count).await;
        times.push(calls[count - 1].at.saturating_duration_since(begun));
    }
    stuck.close();
    outbox.shutdown().await.unwrap();
    db.run("DELETE FROM outbox_event WHERE event_type = 'A'").await;
    times.sort_unstable();
    (times[TIMED / 2], times[TIMED - 1])
}

async fn compare<DB: TestDatabase>(db: &Fresh<DB>, event_type: &str) {
    db.store().await;
    let (baseline, _) = latency(db).await;
    // In steps: a single statement would exceed the time limit of some servers.
    let mut rest = backlog();
    let mut from = 1_000_001;
    while rest > 0 {
        let part = rest.min(500_000);
        db.fill(event_type, 0, from, part).await;
        from += part;
        rest -= part;
    }
    let (with_backlog, longest) = latency(db).await;
    println!(
        "{}: with {} {event_type} rows, p50 {with_backlog:?} instead of {baseline:?}, longest {longest:?}",
        DB::SHORT_NAME,
        backlog()
    );
    // Tests run concurrently, and a poll interval is the smallest difference that counts.
    let bound = 2 * baseline + Duration::from_millis(50);
    assert!(with_backlog <= bound, "{with_backlog:?} instead of {baseline:?}");
}

async fn unknown_events_do_not_delay_other_events<DB: TestDatabase>(db: Fresh<DB>) {
    compare(&db, "Unknown").await;
}

async fn a_listener_at_its_limit_does_not_delay_others<DB: TestDatabase>(db: Fresh<DB>) {
    compare(&db, "Limited").await;
}

/// A listener at its limit continues where it stopped, and processes its whole backlog.
async fn a_listener_at_its_limit_drains_its_backlog<DB: TestDatabase>(db: Fresh<DB>) {
    const EVENTS: usize = 3_000;
    db.store().await;
    db.fill("Unknown", 0, 1, 50_000).await;
    db.fill("Limited", 0, 1_000_001, EVENTS as u64).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let limited = ListenerOptions::new().concurrency(2);
    let registry = ListenerRegistry::new().register_for("Order", "A", |_: Delivery| async {});
    let registry = registry.register_with(limited, "Order", "Limited", move |_: Delivery| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {}
    });
    let outbox = outbox::builder(db.pool.clone()).listeners(registry).start().await.unwrap();
    outbox_tests::eventually("all are delivered", async || calls.load(Ordering::Relaxed) == EVENTS)
        .await;
    outbox.drained().await.unwrap();
    let left = "SELECT COUNT(*) FROM outbox_event WHERE status = 0";
    assert_eq!(db.number(left).await, 50_000, "the unknown events are untouched");
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    unknown_events_do_not_delay_other_events,
    a_listener_at_its_limit_does_not_delay_others,
    a_listener_at_its_limit_drains_its_backlog,
);
