//! Order per aggregate, for each subscription by itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use outbox::dead::DeadFilter;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{EventEnvelope, config};
use outbox_tests::{CallLog, Fresh, TestDatabase, eventually, on_every_database};
use tokio::sync::Semaphore;

use super::{all_delivered, named, rows, subscribe, wait_for_permit};
use crate::harness::{manual_poll, with_status, write};

/// The numbers of the delivered events, by aggregate.
type Delivered = Arc<Mutex<HashMap<String, Vec<u64>>>>;

const AGGREGATES: u64 = 3;
const EVENTS: u64 = 8;

/// More attempts than a test makes.
const FOREVER: u32 = 1_000_000;

fn numbered(aggregate: u64, number: u64) -> EventEnvelope {
    let event = EventEnvelope::builder("A").aggregate_type("Order");
    let event = event.aggregate_id(aggregate.to_string());
    event.payload_json(number.to_string()).build().unwrap()
}

/// Adds a listener that records what it has delivered, and fails for event 2 of aggregate 0 while the flag is set. It
/// gives up after some attempts.
fn failing(
    registry: ListenerRegistry,
    (name, attempts): (&'static str, u32),
    delivered: &Delivered,
    fails: &Arc<AtomicBool>,
) -> ListenerRegistry {
    let (delivered, fails) = (Arc::clone(delivered), Arc::clone(fails));
    subscribe(registry, named(name).max_attempts(attempts), move |delivery: Delivery| {
        let event = delivery.envelope();
        let number: u64 = event.payload().as_str().parse().unwrap();
        let aggregate = event.aggregate_id().unwrap_or_default().to_owned();
        let fails = aggregate == "0" && number == 2 && fails.load(Ordering::SeqCst);
        if !fails {
            delivered.lock().unwrap().entry(aggregate).or_default().push(number);
        }
        async move { if fails { Err("not yet") } else { Ok(()) } }
    })
}

fn of(delivered: &Delivered, aggregate: u64) -> Vec<u64> {
    delivered.lock().unwrap().get(&aggregate.to_string()).cloned().unwrap_or_default()
}

fn expected() -> Vec<u64> {
    (1..=EVENTS).collect()
}

/// Runs the test with events that are inserted with SQL, or written with the outbox.
async fn order_holds<DB: TestDatabase>(db: &Fresh<DB>, is_raw: bool, attempts: u32) {
    let [unnamed, billing] = [(); 2].map(|()| Delivered::default());
    let [never, fails] = [false, true].map(|fails| Arc::new(AtomicBool::new(fails)));
    let registry = failing(ListenerRegistry::new(), ("", 1), &unnamed, &never);
    let registry = failing(registry, ("billing", attempts), &billing, &fails);
    let builder = manual_poll(db, registry).order(config::Ordering::PerAggregate);
    let outbox = builder.start().await.unwrap();
    for number in 1..=EVENTS {
        let events: Vec<EventEnvelope> =
            (0..AGGREGATES).map(|aggregate| numbered(aggregate, number)).collect();
        if !is_raw {
            write(&outbox, &events).await;
            continue;
        }
        let values = events.iter().map(|event| {
            let (id, now) = (event.event_id(), DB::NOW);
            let aggregate = event.aggregate_id().unwrap();
            format!("('{id}', 'A', 'Order', '{aggregate}', '{number}', {now}, {now})")
        });
        db.run(format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, \
             available_at, created_at) VALUES {}",
            values.collect::<Vec<_>>().join(", ")
        ))
        .await;
    }
    outbox.poll_once().await.unwrap();
    let done = i64::try_from(2 * AGGREGATES * EVENTS - (EVENTS - 1)).unwrap();
    eventually("all but those of billing for aggregate 0 are delivered", async || {
        with_status(db, 1).await == done
    })
    .await;
    for aggregate in 0..AGGREGATES {
        assert_eq!(of(&unnamed, aggregate), expected(), "aggregate {aggregate}");
    }
    assert_eq!(of(&billing, 0), [1], "those after the second wait");
    assert_eq!((of(&billing, 1), of(&billing, 2)), (expected(), expected()));
    assert_eq!(rows(db, "status <> 1 AND subscription <> 'billing'").await, 0);
    let dies = i64::from(attempts < FOREVER);
    eventually("the event that fails is dead", async || with_status(db, 3).await == dies).await;
    fails.store(false, Ordering::SeqCst);
    let dead = outbox.dead_events().query(&DeadFilter::new(), 10).await.unwrap();
    for event in dead {
        let of_billing = outbox.dead_events().of_subscription("billing");
        of_billing.replay(event.event_id).await.unwrap();
    }
    all_delivered(db, i64::try_from(2 * AGGREGATES * EVENTS).unwrap()).await;
    assert_eq!(of(&billing, 0), expected());
    assert_eq!(of(&unnamed, 0), expected());
    outbox.shutdown().await.unwrap();
}

async fn a_slow_subscription_delays_only_itself<DB: TestDatabase>(db: Fresh<DB>) {
    let (unnamed, billing) = (Delivered::default(), CallLog::default());
    let (never, semaphore) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let registry = failing(ListenerRegistry::new(), ("", 1), &unnamed, &never);
    let registry = wait_for_permit(registry, "billing", &billing, &semaphore);
    let builder = manual_poll(&db, registry).order(config::Ordering::PerAggregate);
    let outbox = builder.start().await.unwrap();
    for number in 1..=EVENTS {
        write(&outbox, &[numbered(0, number)]).await;
    }
    eventually("the others are delivered", async || of(&unnamed, 0).len() as u64 == EVENTS).await;
    assert_eq!(billing.wait_for(1).await.len(), 1, "one event of an aggregate at a time");
    assert_eq!(of(&unnamed, 0), expected());
    semaphore.add_permits(100);
    all_delivered(&db, i64::try_from(2 * EVENTS).unwrap()).await;
    billing.assert_each_once(usize::try_from(EVENTS).unwrap());
    outbox.shutdown().await.unwrap();
}

async fn a_failing_subscription_blocks_only_itself<DB: TestDatabase>(db: Fresh<DB>) {
    order_holds(&db, false, FOREVER).await;
}

async fn a_dead_letter_blocks_only_its_subscription<DB: TestDatabase>(db: Fresh<DB>) {
    order_holds(&db, false, 2).await;
}

async fn raw_rows_are_expanded_in_order<DB: TestDatabase>(db: Fresh<DB>) {
    order_holds(&db, true, 2).await;
}

on_every_database!(
    a_slow_subscription_delays_only_itself,
    a_failing_subscription_blocks_only_itself,
    a_dead_letter_blocks_only_its_subscription,
    raw_rows_are_expanded_in_order,
);
