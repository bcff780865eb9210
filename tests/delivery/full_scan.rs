//! Backlogs of what a node cannot take: events that it does not know, and events of a listener that is at
//! its limit. Neither is in the way of anything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outbox::{Delivery, ListenerOptions, ListenerRegistry};
use outbox_tests::{CallLog, Fresh, TestDatabase, on_every_database};
use tokio::sync::Semaphore;

use super::harness::insert_due;

/// How many rows are in the way; as many as production had where that is looked at.
fn crowd() -> u64 {
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { 2_000_000 } else { 100_000 }
}

/// How many events are timed.
const TIMED: usize = 60;

/// A listener of `A`, and one of `Limited` that has two calls at once, which never end.
fn listeners(received: &CallLog, stuck: &Arc<Semaphore>) -> ListenerRegistry {
    let (received, stuck) = (received.clone(), Arc::clone(stuck));
    let limited = ListenerOptions::DEFAULT.concurrency(2);
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

/// Inserts events as another process would, one after another, and gives how long each took to be received:
/// the median, and the longest.
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

async fn compare<DB: TestDatabase>(db: &Fresh<DB>, in_the_way: &str) {
    db.store().await;
    let (alone, _) = latency(db).await;
    // In steps: one statement of all would take longer than some server allows.
    let mut rest = crowd();
    let mut from = 1_000_001;
    while rest > 0 {
        let part = rest.min(500_000);
        db.fill(in_the_way, 0, from, part).await;
        from += part;
        rest -= part;
    }
    let (crowded, longest) = latency(db).await;
    println!(
        "{}: beside {} {in_the_way} rows, p50 {crowded:?} instead of {alone:?}, longest {longest:?}",
        DB::SHORT_NAME,
        crowd()
    );
    // Tests run beside each other, and a poll interval is the least that is noticed.
    let bound = 2 * alone + Duration::from_millis(50);
    assert!(crowded <= bound, "{crowded:?} instead of {alone:?}");
}

async fn unknown_events_delay_no_others<DB: TestDatabase>(db: Fresh<DB>) {
    compare(&db, "Unknown").await;
}

async fn a_listener_at_its_limit_delays_no_other<DB: TestDatabase>(db: Fresh<DB>) {
    compare(&db, "Limited").await;
}

/// A listener at its limit reads on where it was left behind, and comes through all of its backlog.
async fn a_listener_at_its_limit_comes_through<DB: TestDatabase>(db: Fresh<DB>) {
    const EVENTS: usize = 3_000;
    db.store().await;
    db.fill("Unknown", 0, 1, 50_000).await;
    db.fill("Limited", 0, 1_000_001, EVENTS as u64).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let limited = ListenerOptions::DEFAULT.concurrency(2);
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
    assert_eq!(db.number(left).await, 50_000, "the unknown ones are left");
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    unknown_events_delay_no_others,
    a_listener_at_its_limit_delays_no_other,
    a_listener_at_its_limit_comes_through,
);
