//! The events the poller claims, and when.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::config::Unroutable;
use outbox::event::Status;
use outbox::listener::{ClaimedEvent, Delivery, ListenerOptions, ListenerRegistry, PollerHandler};
use outbox::metrics::{HotPathSkip, Lane};
use outbox::{Config, EventEnvelope};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};

use crate::harness::{
    CountingMetrics, HOUR, first_row, insert_due, locked_rows, manual_poll, recording_listeners,
    with_status, write,
};

async fn a_backlog_is_drained_without_pauses<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, store) = (CallLog::default(), db.store().await);
    let events: Vec<EventEnvelope> = (0..3_000).map(|_| event("A")).collect();
    for chunk in events.chunks(500) {
        (&db, &store).insert_due(chunk).await;
    }
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    received.wait_for(3_000).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(3_000);
    assert_eq!(with_status(&db, 1).await, 3_000);
}

/// Waits until the poller is idle and sleeps for several seconds at a time.
pub(crate) async fn wait_until_idle<DB: TestDatabase>(outbox: &outbox::Outbox<DB>) {
    outbox.drained().await.unwrap();
    let idle = Instant::now();
    eventually("the poller is idle", async || idle.elapsed() > Duration::from_secs(4)).await;
}

async fn delayed_events_are_delivered_on_time<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, counted) = (CallLog::default(), CountingMetrics::default());
    let outbox = manual_poll(&db, recording_listeners(&received))
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    wait_until_idle(&outbox).await;
    let delay = Duration::from_millis(400);
    let envelope =
        EventEnvelope::builder("A").aggregate_type("Order").payload_json("{}").deliver_after(delay);
    let written = Instant::now();
    write(&outbox, &[envelope.build().unwrap()]).await;
    let late = received.wait_for(1).await[0].at - written;
    assert!(late >= delay, "{late:?}");
    // The documented precision is 100 ms; a loaded machine gets more time.
    assert!(late < delay + Duration::from_millis(500), "{late:?}");
    assert_eq!((counted.skipped(HotPathSkip::Delayed), counted.enqueued(Lane::Hot)), (1, 0));
}

async fn recent_rows_can_be_skipped<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let mut config = Config::default();
    config.skip_recent = Duration::from_secs(60);
    config.poll_interval = HOUR;
    let outbox = outbox::builder(db.pool.clone())
        .config(config)
        .listeners(recording_listeners(&received))
        .start()
        .await
        .unwrap();
    insert_due(&db, &outbox, &["A"]).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 0);
    (&db, outbox.store()).age(Duration::from_secs(61)).await;
    outbox.poll_once().await.unwrap();
    received.wait_for(1).await;
}

async fn failing_events_do_not_starve_new_ones<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, store) = (CallLog::default(), db.store().await);
    let rows = (&db, &store);
    let poison: Vec<EventEnvelope> = (0..3_000).map(|_| event("B")).collect();
    for chunk in poison.chunks(500) {
        rows.insert_due(chunk).await;
    }
    db.run("UPDATE outbox_event SET status = 2, attempts = 1").await;
    rows.age(Duration::from_secs(60)).await;
    rows.insert_due(&[event("A")]).await;
    let outbox = manual_poll(&db, recording_listeners(&received)).workers(1).start().await.unwrap();
    eventually("the new one is delivered", async || received.types().contains(&"A".to_owned()))
        .await;
    let before = received.types().iter().position(|name| name == "A").unwrap();
    assert!(before < 1_500, "{before} were delivered before it");
    outbox.shutdown().await.unwrap();
}

/// Buffers events until it has four of them.
#[derive(Clone, Default)]
struct BufferingHandler {
    buffered: Arc<Mutex<Vec<(ClaimedEvent, u32)>>>,
    capacity: Arc<AtomicUsize>,
}

impl PollerHandler for BufferingHandler {
    fn available_capacity(&self) -> usize {
        self.capacity.load(Ordering::SeqCst)
    }

    fn handle(&self, claimed: ClaimedEvent, attempts: u32) -> ControlFlow<()> {
        let mut buffered = self.buffered.lock().unwrap();
        buffered.push((claimed, attempts));
        let enough = buffered.len() == 4;
        if enough {
            self.capacity.store(0, Ordering::SeqCst);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

async fn a_poller_handler_can_replace_listeners<DB: TestDatabase>(db: Fresh<DB>) {
    let handler = BufferingHandler::default();
    let outbox = outbox::builder(db.pool.clone())
        .handler(handler.clone())
        .poll_interval(HOUR)
        .start()
        .await
        .unwrap();
    outbox.drained().await.unwrap();
    insert_due(&db, &outbox, &["A", "Anything", "B", "C", "D", "E"]).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 0, "there is no capacity");
    handler.capacity.store(10, Ordering::SeqCst);
    outbox.poll_once().await.unwrap();
    // It stopped after four; the others are released.
    eventually("two are released", async || locked_rows(&db).await == 4).await;
    let mut buffered = std::mem::take(&mut *handler.buffered.lock().unwrap());
    assert_eq!(buffered.iter().map(|(_, attempts)| *attempts).collect::<Vec<_>>(), [0; 4]);
    assert_eq!(buffered[1].0.envelope().event_type(), "Anything");
    buffered.remove(0).0.done();
    buffered.remove(0).0.retry(HOUR, "not now");
    buffered.remove(0).0.dead("never");
    drop(buffered);
    eventually("the results are recorded", async || locked_rows(&db).await == 1).await;
    let rows = (&db, outbox.store());
    let first = db.number("SELECT MIN(sequence) FROM outbox_event").await;
    let states = async |sequence: i64| {
        let row = rows.row(sequence).await;
        (row.status, row.attempts, row.last_error.unwrap_or_default())
    };
    assert_eq!(states(first).await, (Status::Done, 0, String::new()));
    assert_eq!(states(first + 1).await, (Status::Retry, 1, "not now".to_owned()));
    assert_eq!(states(first + 2).await, (Status::Dead, 1, "never".to_owned()));
    // The dropped event becomes available after its lease.
    rows.age(Duration::from_secs(31)).await;
    handler.capacity.store(10, Ordering::SeqCst);
    eventually("it and the two released events are done", async || {
        outbox.poll_once().await.unwrap();
        std::mem::take(&mut *handler.buffered.lock().unwrap())
            .into_iter()
            .for_each(|(one, _)| one.done());
        with_status(&db, 1).await == 4
    })
    .await;
    outbox.shutdown().await.unwrap();
}

async fn rows_of_long_transactions_are_found<DB: TestDatabase>(db: Fresh<DB>) {
    // A row that becomes visible long after it was due: below the low watermark.
    let received = CallLog::default();
    let outbox = outbox::builder(db.pool.clone())
        .listeners(recording_listeners(&received))
        .poll_interval(Duration::from_millis(200))
        .start()
        .await
        .unwrap();
    insert_due(&db, &outbox, &["A"]).await;
    received.wait_for(1).await;
    let rows = insert_due(&db, &outbox, &["B"]).await;
    let age = DB::AGE.replace("{table}", "outbox_event").replace("{micros}", "3600000000");
    db.run(format!("{age} WHERE sequence = {}", rows[0])).await;
    received.wait_for(2).await;
}

async fn a_limited_listener_drains_its_backlog<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, store) = (CallLog::default(), db.store().await);
    let rows = (&db, &store);
    for (round, policy) in [(1, Unroutable::Leave), (2, Unroutable::Dead)] {
        let events: Vec<EventEnvelope> = (0..1_500).map(|_| event("Slow")).collect();
        for chunk in events.chunks(500) {
            rows.insert_due(chunk).await;
        }
        // Older than the position where any claim ends.
        rows.age(Duration::from_secs(60)).await;
        let recorded = received.clone();
        let two = ListenerOptions::new().concurrency(2);
        let registry = recording_listeners(&received).register_with(
            two,
            "Order",
            "Slow",
            move |delivery: Delivery| {
                recorded.record(&delivery);
                async { tokio::task::yield_now().await }
            },
        );
        let outbox = manual_poll(&db, registry).unroutable(policy).start().await.unwrap();
        received.wait_for(round * 1_500).await;
        outbox.shutdown().await.unwrap();
    }
    received.assert_each_once(3_000);
}

async fn a_stuck_listener_leaves_capacity_for_others<DB: TestDatabase>(db: Fresh<DB>) {
    for (round, policy) in [(1, Unroutable::Leave), (2, Unroutable::Dead)] {
        let (received, store) = (CallLog::default(), db.store().await);
        let rows = (&db, &store);
        db.run("DELETE FROM outbox_event").await;
        let events: Vec<EventEnvelope> = (0..3_000).map(|_| event("Stuck")).collect();
        for chunk in events.chunks(500) {
            rows.insert_due(chunk).await;
        }
        rows.insert_due(&[event("A"), event("B")]).await;
        let one = ListenerOptions::new().concurrency(1).timeout(outbox::listener::Timeout::Never);
        let registry =
            recording_listeners(&received)
                .register_with(one, "Order", "Stuck", |_: Delivery| std::future::pending::<()>());
        let mut config = Config::default();
        config.drain_timeout = Duration::ZERO;
        config.unroutable = policy;
        let outbox = outbox::builder(db.pool.clone())
            .config(config)
            .listeners(registry)
            .poll_interval(HOUR)
            .start()
            .await
            .unwrap();
        received.wait_for(2).await;
        assert!(locked_rows(&db).await < 600, "round {round}: {}", locked_rows(&db).await);
        outbox.shutdown().await.unwrap();
    }
}

async fn an_unknown_event_does_not_delay_a_scheduled_one<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    wait_until_idle(&outbox).await;
    let delay = Duration::from_millis(300);
    let delayed =
        EventEnvelope::builder("A").aggregate_type("Order").payload_json("{}").deliver_after(delay);
    let written = Instant::now();
    write(&outbox, &[event("Unknown"), delayed.build().unwrap()]).await;
    let late = received.wait_for(1).await[0].at - written;
    assert!(late >= delay && late < delay + Duration::from_millis(700), "{late:?}");
}

async fn one_poll_claims_one_batch<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let mut config = Config::default();
    config.batch_size = 8;
    config.poll_interval = HOUR;
    let outbox = outbox::builder(db.pool.clone())
        .config(config)
        .listeners(recording_listeners(&received))
        .start()
        .await
        .unwrap();
    outbox.drained().await.unwrap();
    insert_due(&db, &outbox, &["A"; 20]).await;
    let first = outbox.poll_once().await.unwrap();
    assert!(first <= 8, "{first}");
    outbox.drained().await.unwrap();
    received.assert_each_once(20);
    assert_eq!(first_row(&db, &outbox).await.status, Status::Done);
}

async fn a_poll_without_listeners_returns<DB: TestDatabase>(db: Fresh<DB>) {
    let builder = manual_poll(&db, ListenerRegistry::new().allow_empty());
    let outbox = builder.start().await.unwrap();
    insert_due(&db, &outbox, &["A"]).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 0);
    outbox.drained().await.unwrap();
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    a_poll_without_listeners_returns,
    a_backlog_is_drained_without_pauses,
    delayed_events_are_delivered_on_time,
    recent_rows_can_be_skipped,
    failing_events_do_not_starve_new_ones,
    a_poller_handler_can_replace_listeners,
    rows_of_long_transactions_are_found,
    a_limited_listener_drains_its_backlog,
    a_stuck_listener_leaves_capacity_for_others,
    an_unknown_event_does_not_delay_a_scheduled_one,
    one_poll_claims_one_batch,
);
