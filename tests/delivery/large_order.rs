//! Ordered outboxes of extreme shapes: very many aggregates with one event each, and one aggregate with very many
//! events.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::config::Ordering;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{EventEnvelope, Outbox};
use outbox_tests::{Fresh, TestDatabase, TestTable};
use sqlx::Postgres;

use crate::harness::{HOUR, listen, with_status};

/// The number of events.
fn size() -> u64 {
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { 100_000 } else { 10_000 }
}

/// The slowest rate, in events per second, on a machine that has other work to do.
const SLOWEST: u64 = 200;

fn numbered(aggregate: u64, number: u64) -> EventEnvelope {
    let event = EventEnvelope::builder("A").aggregate_type("Order");
    let event = event.aggregate_id(aggregate.to_string());
    event.payload_json(number.to_string()).build().unwrap()
}

/// Delivers the events, and returns their numbers in the order of the calls.
async fn deliver<DB: TestDatabase>(db: &Fresh<DB>, events: &[EventEnvelope]) -> Vec<u64> {
    let store = db.store().await;
    for chunk in events.chunks(1_000) {
        (db, &store).insert_due(chunk).await;
    }
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&numbers);
    let registry = listen(ListenerRegistry::new(), "A", move |delivery: Delivery| {
        let number = delivery.envelope().payload().as_str().parse::<u64>().unwrap();
        seen.lock().unwrap().push(number);
        async {}
    });
    let begun = Instant::now();
    let outbox: Outbox<DB> = outbox::builder(db.pool.clone())
        .listeners(registry)
        .poll_interval(HOUR)
        .order(Ordering::PerAggregate)
        .start()
        .await
        .unwrap();
    let limit = Duration::from_secs(events.len() as u64 / SLOWEST);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while (with_status(db, 1).await as usize) < events.len() {
        let count = numbers.lock().unwrap().len();
        assert!(begun.elapsed() < limit, "{count} of {} in {limit:?}", events.len());
        ticks.tick().await;
    }
    println!("{} events: {:?}", events.len(), begun.elapsed());
    outbox.shutdown().await.unwrap();
    Arc::try_unwrap(numbers)
        .map_or_else(|shared| shared.lock().unwrap().clone(), |own| own.into_inner().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_many_aggregates_with_one_event() {
    if let Some(db) = Fresh::<Postgres>::new().await {
        let events: Vec<EventEnvelope> = (0..size()).map(|id| numbered(id, id)).collect();
        let mut delivered = deliver(&db, &events).await;
        delivered.sort_unstable();
        assert!(delivered.into_iter().eq(0..size()), "each once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_one_aggregate_with_many_events() {
    if let Some(db) = Fresh::<Postgres>::new().await {
        let events: Vec<EventEnvelope> = (0..size()).map(|number| numbered(1, number)).collect();
        assert!(deliver(&db, &events).await.into_iter().eq(0..size()), "each once, in order");
    }
}
