//! Order per aggregate: one event at a time, in the order of `sequence`, through retries and across nodes.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::config::{Mode, Ordering};
use outbox::error::StartFault;
use outbox::listener::{ClaimedEvent, Delivery, ListenerRegistry, PollerHandler};
use outbox::metrics::Lane;
use outbox::{Builder, Error, EventEnvelope, ListenerError, Outbox, Outcome, Tx};
use outbox_tests::{Fresh, TestDatabase, TestTable, eventually, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::harness::{CountingMetrics, HOUR, listen, with_status, write};

/// What the listeners were called with, and what they did.
#[derive(Debug, Clone, Default)]
struct Deliveries(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The numbers of the events that were delivered, by aggregate.
    delivered: HashMap<String, Vec<u64>>,
    running: HashMap<String, u64>,
    /// Two events of an aggregate that ran at the same time.
    overlaps: Vec<(String, u64, u64)>,
    calls: usize,
}

impl Deliveries {
    fn begin(&self, aggregate: &str, number: u64) {
        let mut seen = self.0.lock().unwrap();
        seen.calls += 1;
        if let Some(other) = seen.running.insert(aggregate.to_owned(), number) {
            seen.overlaps.push((aggregate.to_owned(), other, number));
        }
    }

    fn end(&self, aggregate: &str, number: u64, delivered: bool) {
        let mut seen = self.0.lock().unwrap();
        seen.running.remove(aggregate);
        if delivered {
            seen.delivered.entry(aggregate.to_owned()).or_default().push(number);
        }
    }

    fn of(&self, aggregate: &str) -> Vec<u64> {
        self.0.lock().unwrap().delivered.get(aggregate).cloned().unwrap_or_default()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().delivered.values().map(Vec::len).sum()
    }

    fn calls(&self) -> usize {
        self.0.lock().unwrap().calls
    }

    fn assert_no_overlap(&self) {
        let overlaps = &self.0.lock().unwrap().overlaps;
        assert!(overlaps.is_empty(), "two events of an aggregate at once: {overlaps:?}");
    }

    /// Asserts that every aggregate got its events 1 to `events` in order.
    fn assert_in_order(&self, aggregates: u64, events: u64) {
        self.assert_no_overlap();
        for aggregate in 0..aggregates {
            let expected: Vec<u64> = (1..=events).collect();
            assert_eq!(self.of(&aggregate.to_string()), expected, "aggregate {aggregate}");
        }
    }
}

/// Returns event `number` of an aggregate.
fn numbered(name: &str, aggregate: u64, number: u64) -> EventEnvelope {
    let event = EventEnvelope::builder(name).aggregate_type("Order");
    let event = event.aggregate_id(aggregate.to_string());
    event.payload_json(number.to_string()).build().unwrap()
}

fn number_of(delivery: &Delivery) -> (String, u64) {
    let event = delivery.envelope();
    let number = event.payload().as_str().parse().unwrap();
    (event.aggregate_id().unwrap_or_default().to_owned(), number)
}

/// Returns a listener for `A` that records deliveries, takes some time, and fails where `fails` says so, by
/// aggregate, number and the number of earlier calls.
fn recording(
    registry: ListenerRegistry,
    deliveries: &Deliveries,
    fails: impl Fn(&str, u64, u32) -> bool + Clone + Send + Sync + 'static,
) -> ListenerRegistry {
    let deliveries = deliveries.clone();
    listen(registry, "A", move |delivery: Delivery| {
        let (deliveries, fails) = (deliveries.clone(), fails.clone());
        async move {
            let ((aggregate, number), attempts) = (number_of(&delivery), delivery.attempts());
            deliveries.begin(&aggregate, number);
            tokio::task::yield_now().await;
            let fails = fails(&aggregate, number, attempts);
            deliveries.end(&aggregate, number, !fails);
            if fails { Err("not yet") } else { Ok(()) }
        }
    })
}

fn succeeding(deliveries: &Deliveries) -> ListenerRegistry {
    recording(ListenerRegistry::new(), deliveries, |_, _, _| false)
}

/// Returns the builder of an ordered outbox that polls only if it is woken.
fn ordered<DB: TestDatabase>(db: &Fresh<DB>, registry: ListenerRegistry) -> Builder<DB> {
    let builder = outbox::builder(db.pool.clone()).listeners(registry).poll_interval(HOUR);
    let (base, max) = (Duration::from_millis(5), Duration::from_millis(50));
    builder.order(Ordering::PerAggregate).retry_base(base).retry_max(max)
}

async fn events_are_delivered_in_order_through_retries<DB: TestDatabase>(db: Fresh<DB>) {
    const AGGREGATES: u64 = 20;
    const EVENTS: u64 = 25;
    let deliveries = Deliveries::default();
    let fails = |aggregate: &str, number: u64, attempts: u32| {
        attempts == 0 && (number + aggregate.len() as u64) % 7 == 3
    };
    let registry = || recording(ListenerRegistry::new(), &deliveries, fails);
    let node = || ordered(&db, registry()).poll_interval(Duration::from_millis(20));
    let nodes = [node().start().await.unwrap(), node().start().await.unwrap()];
    for number in 1..=EVENTS {
        let events: Vec<EventEnvelope> =
            (0..AGGREGATES).map(|aggregate| numbered("A", aggregate, number)).collect();
        write(&nodes[number as usize % 2], &events).await;
    }
    eventually("all are delivered", async || {
        with_status(&db, 1).await as u64 == AGGREGATES * EVENTS
    })
    .await;
    deliveries.assert_in_order(AGGREGATES, EVENTS);
    for node in nodes {
        node.shutdown().await.unwrap();
    }
}

async fn a_backlog_is_delivered_in_order<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let deliveries = Deliveries::default();
    // One aggregate with many events, and many with few.
    let many: Vec<EventEnvelope> = (1..=1_500).map(|number| numbered("A", 0, number)).collect();
    let few = (1..=3).flat_map(|number| (1..=300).map(move |id| numbered("A", id, number)));
    let few: Vec<EventEnvelope> = few.collect();
    for chunk in many.chunks(500).chain(few.chunks(500)) {
        (&db, &store).insert_due(chunk).await;
    }
    let outbox = ordered(&db, succeeding(&deliveries)).start().await.unwrap();
    eventually("all are delivered", async || deliveries.count() == 1_500 + 900).await;
    outbox.drained().await.unwrap();
    deliveries.assert_no_overlap();
    assert_eq!(deliveries.of("0"), (1..=1_500).collect::<Vec<_>>());
    assert!((1..=300).all(|id: u64| deliveries.of(&id.to_string()) == [1, 2, 3]));
    assert_eq!(deliveries.calls(), 2_400, "none was delivered twice");
    outbox.shutdown().await.unwrap();
}

async fn a_commit_wakes_the_poller<DB: TestDatabase>(db: Fresh<DB>) {
    let (deliveries, counted) = (Deliveries::default(), CountingMetrics::default());
    let outbox = ordered(&db, succeeding(&deliveries)).metrics(counted.clone());
    let outbox = outbox.start().await.unwrap();
    outbox.drained().await.unwrap();
    for number in 1..=20 {
        write(&outbox, &[numbered("A", 7, number)]).await;
        let written = Instant::now();
        eventually("it is delivered", async || deliveries.count() as u64 == number).await;
        assert!(written.elapsed() < Duration::from_secs(1), "{:?}", written.elapsed());
    }
    deliveries.assert_no_overlap();
    assert_eq!((counted.enqueued(Lane::Hot), counted.enqueued(Lane::Cold)), (0, 20));
}

async fn events_without_an_aggregate_id_have_no_order<DB: TestDatabase>(db: Fresh<DB>) {
    let (deliveries, counted) = (Deliveries::default(), CountingMetrics::default());
    let registry = recording(ListenerRegistry::new(), &deliveries, |_, number, _| number == 1);
    let outbox = ordered(&db, registry).max_attempts(1).metrics(counted.clone());
    let outbox = outbox.start().await.unwrap();
    let without_id = |number: u64| {
        let event = EventEnvelope::builder("A").aggregate_type("Order");
        event.payload_json(number.to_string()).build().unwrap()
    };
    write(&outbox, &[without_id(1), without_id(2)]).await;
    eventually("the second is delivered", async || deliveries.of("") == [2]).await;
    assert_eq!(counted.enqueued(Lane::Hot), 2, "they take the hot queue");
    // An empty id, as another program may write it, is none, and so is NULL.
    for id in ["''", "NULL"] {
        db.run(format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, available_at, \
             created_at) VALUES ('{}', 'A', 'Order', {id}, '{}', {now}, {now})",
            if id == "NULL" { "n" } else { "e" },
            if id == "NULL" { 4 } else { 3 },
            now = DB::NOW,
        ))
        .await;
    }
    outbox.poll_once().await.unwrap();
    eventually("they are delivered", async || {
        let mut delivered = deliveries.of("");
        delivered.sort_unstable();
        delivered == [2, 3, 4]
    })
    .await;
    outbox.shutdown().await.unwrap();
}

/// Writes events of an aggregate, one transaction each.
async fn write_numbers<DB: TestDatabase>(
    outbox: &Outbox<DB>,
    aggregate: u64,
    numbers: impl IntoIterator<Item = u64>,
) {
    for number in numbers {
        write(outbox, &[numbered("A", aggregate, number)]).await;
    }
}

async fn a_delayed_head_holds_its_aggregate_back<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let outbox = ordered(&db, succeeding(&deliveries)).start().await.unwrap();
    let delayed = EventEnvelope::builder("A").aggregate_type("Order").aggregate_id("1");
    let delayed = delayed.payload_json("1").deliver_after(HOUR).build().unwrap();
    write(&outbox, std::slice::from_ref(&delayed)).await;
    write_numbers(&outbox, 1, [2]).await;
    write_numbers(&outbox, 2, [1, 2]).await;
    eventually("another aggregate is not delayed", async || deliveries.of("2") == [1, 2]).await;
    outbox.drained().await.unwrap();
    assert_eq!(deliveries.of("1"), [0; 0]);
    outbox.admin().make_due(delayed.event_id()).await.unwrap();
    eventually("both are delivered", async || deliveries.of("1") == [1, 2]).await;
    outbox.shutdown().await.unwrap();
}

async fn a_failing_aggregate_does_not_delay_others<DB: TestDatabase>(db: Fresh<DB>) {
    let (deliveries, store) = (Deliveries::default(), db.store().await);
    let poisoned: Vec<EventEnvelope> = (1..=2_000).map(|number| numbered("A", 0, number)).collect();
    for chunk in poisoned.chunks(500) {
        (&db, &store).insert_due(chunk).await;
    }
    let registry =
        recording(ListenerRegistry::new(), &deliveries, |aggregate, _, _| aggregate == "0");
    let outbox = ordered(&db, registry).max_attempts(1_000_000).start().await.unwrap();
    for number in 1..=50 {
        let written = Instant::now();
        write_numbers(&outbox, 1 + number, [1]).await;
        let id = (1 + number).to_string();
        eventually("it is delivered", async || deliveries.of(&id) == [1]).await;
        assert!(written.elapsed() < Duration::from_secs(2), "{:?}", written.elapsed());
    }
    assert_eq!(deliveries.of("0"), [0; 0]);
    outbox.shutdown().await.unwrap();
    deliveries.assert_no_overlap();
    assert_eq!(with_status(&db, 1).await, 50);
}

async fn listeners_in_a_transaction_keep_the_order<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE effect (number BIGINT NOT NULL)").await;
    let deliveries = Deliveries::default();
    let recorded = deliveries.clone();
    let registry = ListenerRegistry::new().register_in_tx(
        outbox::listener::ListenerOptions::new(),
        "Order",
        "A",
        move |delivery: Delivery, tx: &mut Tx<DB>| {
            let recorded = recorded.clone();
            Box::pin(async move {
                let ((aggregate, number), attempts) = (number_of(&delivery), delivery.attempts());
                recorded.begin(&aggregate, number);
                let fails = attempts == 0 && number % 5 == 0;
                let effect = format!("INSERT INTO effect (number) VALUES ({number})");
                DB::run(&mut *tx, AssertSqlSafe(effect).into_sql_str()).await?;
                recorded.end(&aggregate, number, !fails);
                if fails { Err(ListenerError::from("not yet")) } else { Ok(Outcome::Done) }
            })
        },
    );
    let outbox = ordered(&db, registry).start().await.unwrap();
    let events: Vec<EventEnvelope> = (1..=30).map(|number| numbered("A", 0, number)).collect();
    write(&outbox, &events).await;
    eventually("all are delivered", async || with_status(&db, 1).await == 30).await;
    deliveries.assert_in_order(1, 30);
    assert_eq!(db.number("SELECT COUNT(*) FROM effect").await, 30, "each effect once");
    outbox.shutdown().await.unwrap();
}

/// Settles events some time after it was given them.
#[derive(Clone)]
struct Forwarder {
    deliveries: Deliveries,
    runtime: tokio::runtime::Handle,
}

impl PollerHandler for Forwarder {
    fn available_capacity(&self) -> usize {
        100
    }

    fn handle(&self, claimed: ClaimedEvent, attempts: u32) -> ControlFlow<()> {
        let event = claimed.envelope();
        let number: u64 = event.payload().as_str().parse().unwrap();
        let aggregate = event.aggregate_id().unwrap().to_owned();
        let deliveries = self.deliveries.clone();
        deliveries.begin(&aggregate, number);
        self.runtime.spawn(async move {
            tokio::task::yield_now().await;
            let fails = attempts == 0 && number.is_multiple_of(4);
            deliveries.end(&aggregate, number, !fails);
            match fails {
                true => claimed.retry(Duration::from_millis(1), "not yet"),
                false => claimed.done(),
            }
        });
        ControlFlow::Continue(())
    }
}

async fn a_handler_gets_the_events_of_an_aggregate_one_by_one<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let forwarder =
        Forwarder { deliveries: deliveries.clone(), runtime: tokio::runtime::Handle::current() };
    let outbox = outbox::builder(db.pool.clone()).handler(forwarder).poll_interval(HOUR);
    let outbox = outbox.order(Ordering::PerAggregate).start().await.unwrap();
    let events = (1..=20).flat_map(|number| (0..3).map(move |id| numbered("A", id, number)));
    write(&outbox, &events.collect::<Vec<_>>()).await;
    eventually("all are delivered", async || with_status(&db, 1).await == 60).await;
    deliveries.assert_in_order(3, 20);
    outbox.shutdown().await.unwrap();
}

async fn order_and_hot_queue_exclude_each_other<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let refused = ordered(&db, succeeding(&deliveries)).mode(Mode::Full).start().await;
    let Err(Error::Start(error)) = refused else { panic!("it was started") };
    let text = error.to_string();
    assert!(text.contains("`mode` must be unset or `PollerOnly`"), "{text}");
    ordered(&db, succeeding(&deliveries)).mode(Mode::PollerOnly).start().await.unwrap();
}

async fn two_orders_on_one_table_are_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let running = ordered(&db, succeeding(&deliveries)).start().await.unwrap();
    let unordered = outbox::builder(db.pool.clone()).listeners(succeeding(&deliveries));
    let Err(Error::Start(error)) = unordered.start().await else { panic!("it was started") };
    let [StartFault::DifferentOrder { running: with, running_place, order, place, .. }] =
        error.faults()
    else {
        panic!("{error}")
    };
    assert_eq!((*with, *order), (Ordering::PerAggregate, Ordering::Unordered));
    let text = error.to_string();
    for place in [running_place, place] {
        assert!(place.file.ends_with("delivery/ordering.rs"), "{place}");
        assert!(text.contains(&place.to_string()), "{text}");
    }
    running.shutdown().await.unwrap();
    let unordered = outbox::builder(db.pool.clone()).listeners(succeeding(&deliveries));
    unordered.start().await.unwrap().shutdown().await.unwrap();
}

async fn the_order_cannot_change_while_events_are_in_flight<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let outbox = ordered(&db, succeeding(&deliveries)).start().await.unwrap();
    outbox.shutdown().await.unwrap();
    // An event of another process.
    let store = db.store().await;
    let rows = (&db, &store).insert_due(&[numbered("A", 1, 1)]).await;
    let lease = |sign: &str| {
        format!(
            "UPDATE outbox_event SET locked_by = 'node-of-another-process', available_at = {} \
             WHERE sequence = {}",
            DB::LATER.replace("{sign}", sign),
            rows[0].sequence
        )
    };
    db.run(lease("")).await;
    let unordered = || outbox::builder(db.pool.clone()).listeners(succeeding(&deliveries));
    let Err(Error::Start(error)) = unordered().start().await else { panic!("it was started") };
    let [StartFault::OrderInUse { order, node, .. }] = error.faults() else { panic!("{error}") };
    assert_eq!((*order, node.as_str()), (Ordering::Unordered, "node-of-another-process"));
    // The same order is no change.
    ordered(&db, succeeding(&deliveries)).start().await.unwrap().shutdown().await.unwrap();
    db.run(lease("-")).await;
    let unordered = unordered().start().await.unwrap();
    eventually("it is delivered", async || deliveries.of("1") == [1]).await;
    unordered.shutdown().await.unwrap();
    ordered(&db, succeeding(&deliveries)).start().await.unwrap().shutdown().await.unwrap();
}

async fn a_lost_node_is_taken_over_in_order<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let stuck = listen(ListenerRegistry::new(), "A", |_: Delivery| std::future::pending::<()>());
    let lost = ordered(&db, stuck).lease(Duration::from_secs(1)).start().await.unwrap();
    write(&lost, &(1..=5).map(|number| numbered("A", 0, number)).collect::<Vec<_>>()).await;
    eventually("they are claimed", async || {
        db.number("SELECT COUNT(locked_by) FROM outbox_event").await == 5
    })
    .await;
    // As in a crash: its leases are not renewed.
    drop(lost);
    let outbox = ordered(&db, succeeding(&deliveries)).poll_interval(Duration::from_millis(50));
    let outbox = outbox.start().await.unwrap();
    eventually("all are delivered", async || deliveries.count() == 5).await;
    deliveries.assert_in_order(1, 5);
    outbox.shutdown().await.unwrap();
}

/// A session that keeps the lock of claims, as that of a stopped process does, is ended.
async fn a_stuck_claim_does_not_stop_the_others<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let outbox = ordered(&db, succeeding(&deliveries)).lease(Duration::from_secs(1));
    let outbox = outbox.start().await.unwrap();
    let mut stuck = db.pool.acquire().await.unwrap();
    for sql in DB::HOLD_CLAIM_LOCK {
        DB::run(&mut stuck, AssertSqlSafe(*sql).into_sql_str()).await.unwrap();
    }
    let written = Instant::now();
    write(&outbox, &[numbered("A", 1, 1)]).await;
    eventually("it is delivered", async || deliveries.count() == 1).await;
    println!("{}: {:?} behind a stuck claim", DB::SHORT_NAME, written.elapsed());
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    events_are_delivered_in_order_through_retries,
    a_backlog_is_delivered_in_order,
    a_commit_wakes_the_poller,
    events_without_an_aggregate_id_have_no_order,
    a_delayed_head_holds_its_aggregate_back,
    a_failing_aggregate_does_not_delay_others,
    listeners_in_a_transaction_keep_the_order,
    a_handler_gets_the_events_of_an_aggregate_one_by_one,
    order_and_hot_queue_exclude_each_other,
    two_orders_on_one_table_are_refused,
    the_order_cannot_change_while_events_are_in_flight,
    a_lost_node_is_taken_over_in_order,
);

mod stuck {
    outbox_tests::on_every_server!(a_stuck_claim_does_not_stop_the_others);
    use super::a_stuck_claim_does_not_stop_the_others;
}
