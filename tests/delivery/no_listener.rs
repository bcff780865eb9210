//! Events that need no listener: written by every kind of node, and pending rows of them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::admin::Stats;
use outbox::config::{Completion, Mode, PurgeConfig, Unroutable};
use outbox::event::Status;
use outbox::listener::{ClaimedEvent, Delivery, ListenerOptions, ListenerRegistry, PollerHandler};
use outbox::metrics::{Lane, MetricsExporter};
use outbox::{AggregateType, Config, EventType, Outbox, Outcome, Tx};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};

use crate::harness::{
    CountingMetrics, HOUR, first_row, manual_poll, recording_listeners, with_status, write,
};

#[derive(AggregateType)]
#[outbox(alias = "Journal")]
struct Ledger;

#[derive(EventType)]
#[outbox(aggregate = Ledger)]
enum LedgerEvent {
    #[outbox(no_listener, alias = "Noted")]
    Booked { cents: u64 },
}

const BOOKED: LedgerEvent = LedgerEvent::Booked { cents: 5 };

async fn book<DB: TestDatabase>(outbox: &Outbox<DB>) {
    let mut tx = outbox.begin().await.unwrap();
    tx.write(BOOKED).unwrap();
    tx.commit().await.unwrap();
}

/// Inserts pending rows as a program does that does not know the declaration.
async fn insert_pending<DB: TestDatabase>(
    db: &Fresh<DB>,
    aggregate: &str,
    event: &str,
    numbers: std::ops::Range<u32>,
) {
    let rows = numbers.map(|number| {
        let now = DB::NOW;
        format!("('{event}-{number}', '{event}', '{aggregate}', '{{}}', 0, 0, {now}, {now})")
    });
    db.run(format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, status, attempts, \
         available_at, created_at) VALUES {}",
        rows.collect::<Vec<_>>().join(", ")
    ))
    .await;
}

fn listener_for_booked(received: &CallLog) -> ListenerRegistry {
    let received = received.clone();
    ListenerRegistry::new().register_for("Ledger", "Booked", move |delivery: Delivery| {
        received.record(&delivery);
        async {}
    })
}

/// Keeps the last reported state of the table.
#[derive(Debug, Default, Clone)]
struct LastStats(Arc<Mutex<Option<Stats>>>);

impl MetricsExporter for LastStats {
    fn table(&self, stats: &Stats) {
        *self.0.lock().unwrap() = Some(*stats);
    }
}

impl LastStats {
    async fn reported(&self) -> Stats {
        eventually("the table is read", async || self.0.lock().unwrap().is_some()).await;
        self.0.lock().unwrap().unwrap()
    }
}

async fn a_node_settles_the_event_without_a_call<DB: TestDatabase>(db: Fresh<DB>) {
    for unroutable in [Unroutable::Leave, Unroutable::Dead] {
        let (received, counted) = (CallLog::default(), CountingMetrics::default());
        let mut config = Config::default();
        (config.unroutable, config.poll_interval) = (unroutable, HOUR);
        // One place in the hot queue, for the event that needs it.
        config.hot_capacity = 1;
        let outbox = outbox::builder(db.pool.clone())
            .config(config)
            .listeners(recording_listeners(&received))
            .metrics(counted.clone())
            .start()
            .await
            .unwrap();
        let mut tx = outbox.begin().await.unwrap();
        tx.write_all([BOOKED, BOOKED]).unwrap();
        tx.write(event("A")).unwrap();
        tx.commit().await.unwrap();
        received.wait_for(1).await;
        outbox.drained().await.unwrap();
        assert_eq!(received.types(), ["A"]);
        assert_eq!((counted.enqueued(Lane::Hot), counted.enqueued(Lane::Cold)), (1, 0));
        assert_eq!(counted.results().len(), 1);
        outbox.shutdown().await.unwrap();
        assert_eq!((with_status(&db, 1).await, with_status(&db, 3).await), (3, 0));
        let row = first_row(&db, &outbox).await;
        assert_eq!((row.status, row.ended, row.token), (Status::Done, true, 0));
        assert_eq!((row.attempts, row.last_error), (0, None));
        db.run("DELETE FROM outbox_event").await;
    }
}

async fn the_row_is_kept_for_the_retention<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let mut config = Config::default();
    (config.completion, config.poll_interval) = (Completion::Delete, HOUR);
    let purge = PurgeConfig::new().retention(HOUR).interval(Duration::from_millis(50));
    config.purge = Some(purge);
    let outbox = outbox::builder(db.pool.clone())
        .config(config)
        .listeners(recording_listeners(&received))
        .start()
        .await
        .unwrap();
    book(&outbox).await;
    insert_pending(&db, "Ledger", "Booked", 0..1).await;
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    outbox.drained().await.unwrap();
    let rows = (&db, outbox.store());
    assert_eq!((rows.count().await, with_status(&db, 1).await), (2, 2), "that of `A` is deleted");
    rows.age(HOUR + Duration::from_secs(60)).await;
    eventually("they are purged", async || rows.count().await == 0).await;
}

async fn it_is_not_pending_and_not_unroutable<DB: TestDatabase>(db: Fresh<DB>) {
    let first = manual_poll(&db, recording_listeners(&CallLog::default())).start().await.unwrap();
    book(&first).await;
    first.shutdown().await.unwrap();
    // A row that cannot be settled yet: it is not due.
    insert_pending(&db, "Ledger", "Booked", 0..1).await;
    insert_pending(&db, "Ledger", "Unknown", 0..1).await;
    let later = DB::AGE.replace("{table}", "outbox_event").replace("{micros}", "-7200000000");
    db.run(format!("{later} WHERE status = 0")).await;
    let stats = LastStats::default();
    let registry = recording_listeners(&CallLog::default());
    let outbox = manual_poll(&db, registry).metrics(stats.clone()).start().await.unwrap();
    let reported = stats.reported().await;
    assert_eq!((reported.pending, reported.unroutable), (2, 1), "{reported:?}");
    outbox.shutdown().await.unwrap();
    db.run("DELETE FROM outbox_event WHERE status = 0").await;
    (&db, outbox.store()).age(HOUR).await;
    let stats = LastStats::default();
    let registry = recording_listeners(&CallLog::default());
    let outbox = manual_poll(&db, registry).metrics(stats.clone()).start().await.unwrap();
    let reported = stats.reported().await;
    let counts = (reported.pending, reported.unroutable, reported.locked, reported.dead);
    assert_eq!(counts, (0, 0, 0, 0));
    assert_eq!(reported.oldest_overdue, Duration::ZERO);
    outbox.shutdown().await.unwrap();
}

async fn a_relay_settles_pending_rows_without_a_call<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    for unroutable in [Unroutable::Leave, Unroutable::Dead] {
        insert_pending(&db, "Ledger", "Booked", 0..2).await;
        insert_pending(&db, "Journal", "Noted", 0..1).await;
        // A row whose owners were lost, and one that was tried before.
        let lost = "UPDATE outbox_event SET locked_by = 'lost', claim_token = 7, takeovers = 9";
        db.run(format!("{lost} WHERE event_id = 'Booked-0'")).await;
        db.run("UPDATE outbox_event SET status = 2, attempts = 3 WHERE event_id = 'Booked-1'")
            .await;
        let (received, counted) = (CallLog::default(), CountingMetrics::default());
        let intercepted = Arc::new(AtomicUsize::new(0));
        let calls = Arc::clone(&intercepted);
        let outbox = manual_poll(&db, recording_listeners(&received))
            .unroutable(unroutable)
            .metrics(counted.clone())
            .before(move |_, _| {
                calls.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .start()
            .await
            .unwrap();
        eventually("they are settled", async || with_status(&db, 1).await == 3).await;
        outbox.drained().await.unwrap();
        let row = first_row(&db, &outbox).await;
        assert_eq!((row.status, row.ended, row.locked_by), (Status::Done, true, None));
        outbox.shutdown().await.unwrap();
        assert_eq!((received.count(), intercepted.load(Ordering::SeqCst)), (0, 0));
        assert_eq!((counted.results(), counted.enqueued(Lane::Cold)), (vec![], 0));
        db.run("DELETE FROM outbox_event").await;
    }
}

/// A backlog from before the declaration, larger than a batch and than all queues.
async fn a_backlog_of_pending_rows_is_settled<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    insert_pending(&db, "Ledger", "Booked", 0..1_200).await;
    let received = CallLog::default();
    let mut config = Config::default();
    config.poll_interval = HOUR;
    (config.batch_size, config.cold_capacity) = (50, 10);
    let builder = outbox::builder(db.pool.clone()).config(config);
    let outbox = builder.listeners(recording_listeners(&received)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    outbox.drained().await.unwrap();
    assert_eq!((with_status(&db, 1).await, received.count()), (1_201, 1));
    outbox.shutdown().await.unwrap();
}

async fn a_relay_without_listeners_settles_pending_rows<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    insert_pending(&db, "Ledger", "Booked", 0..1).await;
    insert_pending(&db, "Ledger", "Unknown", 0..1).await;
    let registry = ListenerRegistry::new().allow_empty();
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    eventually("it is settled", async || with_status(&db, 1).await == 1).await;
    assert_eq!(with_status(&db, 0).await, 1, "the other one waits for a listener");
    outbox.pause().unwrap();
    insert_pending(&db, "Ledger", "Booked", 1..2).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 0, "it is paused");
    outbox.resume().unwrap();
    eventually("it is settled", async || with_status(&db, 1).await == 2).await;
}

async fn a_listener_receives_the_event<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, listener_for_booked(&received)).start().await.unwrap();
    book(&outbox).await;
    insert_pending(&db, "Ledger", "Booked", 0..1).await;
    outbox.poll_once().await.unwrap();
    received.wait_for(2).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(2);
    assert_eq!(with_status(&db, 1).await, 2);
}

/// The events that a listener writes in its transaction.
async fn a_listeners_own_event_is_settled<DB: TestDatabase>(db: Fresh<DB>) {
    let registry = ListenerRegistry::new().register_in_tx(
        ListenerOptions::new(),
        "Order",
        "A",
        |_: Delivery, tx: &mut Tx<DB>| {
            Box::pin(async move {
                tx.write(BOOKED)?;
                Ok(Outcome::Done)
            })
        },
    );
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("both are done", async || with_status(&db, 1).await == 2).await;
    let sequence = db.number("SELECT MAX(sequence) FROM outbox_event").await;
    let row = (&db, outbox.store()).row(sequence).await;
    assert_eq!((row.status, row.token, row.ended), (Status::Done, 0, true));
    outbox.shutdown().await.unwrap();
}

async fn a_writer_only_node_settles_the_event_unless_it_has_a_listener<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let writer_only = || outbox::builder(db.pool.clone()).mode(Mode::WriterOnly);
    let producer = writer_only().start().await.unwrap();
    book(&producer).await;
    assert_eq!((with_status(&db, 1).await, with_status(&db, 0).await), (1, 0));
    let received = CallLog::default();
    // The same program as the one that delivers, started to write only.
    let producer = writer_only().listeners(listener_for_booked(&received)).start().await.unwrap();
    book(&producer).await;
    assert_eq!((with_status(&db, 1).await, with_status(&db, 0).await), (1, 1));
    let worker = manual_poll(&db, listener_for_booked(&received)).start().await.unwrap();
    received.wait_for(1).await;
    worker.drained().await.unwrap();
    assert_eq!((with_status(&db, 1).await, received.count()), (2, 1));
    worker.shutdown().await.unwrap();
}

/// Takes every event.
#[derive(Debug, Default, Clone)]
struct TakingHandler(Arc<Mutex<Vec<String>>>);

impl PollerHandler for TakingHandler {
    fn available_capacity(&self) -> usize {
        10
    }

    fn handle(&self, claimed: ClaimedEvent, _: u32) -> ControlFlow<()> {
        self.0.lock().unwrap().push(claimed.envelope().event_type().to_owned());
        claimed.done();
        ControlFlow::Continue(())
    }
}

async fn a_handler_receives_the_event<DB: TestDatabase>(db: Fresh<DB>) {
    let handler = TakingHandler::default();
    let builder = outbox::builder(db.pool.clone()).handler(handler.clone()).poll_interval(HOUR);
    let outbox = builder.start().await.unwrap();
    book(&outbox).await;
    eventually("it is handled", async || *handler.0.lock().unwrap() == ["Booked"]).await;
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    a_node_settles_the_event_without_a_call,
    the_row_is_kept_for_the_retention,
    it_is_not_pending_and_not_unroutable,
    a_relay_settles_pending_rows_without_a_call,
    a_backlog_of_pending_rows_is_settled,
    a_relay_without_listeners_settles_pending_rows,
    a_listener_receives_the_event,
    a_listeners_own_event_is_settled,
    a_writer_only_node_settles_the_event_unless_it_has_a_listener,
    a_handler_receives_the_event,
);
