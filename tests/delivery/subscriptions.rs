//! Several listeners of one event: each has a row, attempts and dead letters of its own.

mod expansion;
mod operations;
mod ordered;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::config::Mode;
use outbox::event::Status;
use outbox::listener::{Delivery, ForwardFilter, IntoOutcome, ListenerOptions, ListenerRegistry};
use outbox::metrics::Lane;
use outbox::tx::{WriteOutcome, Writer};
use outbox::{EventEnvelope, Outbox, Outcome, Tx};
use outbox_runtime::store::Table;
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr};
use tokio::sync::Semaphore;

use crate::harness::{CountingMetrics, manual_poll, with_status, write};

/// Returns the options of a subscription that is retried at once; those of the unnamed listener if the name is empty.
fn named(name: &'static str) -> ListenerOptions {
    let options = ListenerOptions::new()
        .retry_base(Duration::from_millis(5))
        .retry_max(Duration::from_millis(20));
    if name.is_empty() { options } else { options.name(name) }
}

/// Registers a listener of event `A`. All of them are registered at this place: outboxes with different listeners stand
/// for processes of their own.
fn subscribe<F, Fut>(
    registry: ListenerRegistry,
    options: ListenerOptions,
    listener: F,
) -> ListenerRegistry
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    registry.register_with(options, "Order", "A", listener)
}

/// Adds a listener that records its calls.
fn record(registry: ListenerRegistry, name: &'static str, received: &CallLog) -> ListenerRegistry {
    let received = received.clone();
    subscribe(registry, named(name), move |delivery: Delivery| {
        received.record(&delivery);
        async {}
    })
}

/// Returns listeners that record their calls, and their logs in the same order.
fn recording<const N: usize>(names: [&'static str; N]) -> (ListenerRegistry, [CallLog; N]) {
    let logs = names.map(|_| CallLog::default());
    let each = names.iter().zip(&logs);
    (each.fold(ListenerRegistry::new(), |registry, (name, log)| record(registry, name, log)), logs)
}

/// Adds a listener that records its calls and waits for a permit of the semaphore.
fn wait_for_permit(
    registry: ListenerRegistry,
    name: &'static str,
    received: &CallLog,
    semaphore: &Arc<Semaphore>,
) -> ListenerRegistry {
    let (received, semaphore) = (received.clone(), Arc::clone(semaphore));
    subscribe(registry, named(name), move |delivery: Delivery| {
        received.record(&delivery);
        let semaphore = Arc::clone(&semaphore);
        async move {
            let _ = semaphore.acquire().await;
        }
    })
}

/// Returns the number of rows that meet a condition.
async fn rows<DB: TestDatabase>(db: &Fresh<DB>, condition: &str) -> i64 {
    db.number(format!("SELECT COUNT(*) FROM outbox_event WHERE {condition}")).await
}

/// Waits until every row is delivered, and asserts how many there are and that none is claimed.
async fn all_delivered<DB: TestDatabase>(db: &Fresh<DB>, expected: i64) {
    eventually("all are delivered", async || rows(db, "status <> 1").await == 0).await;
    assert_eq!(rows(db, "locked_by IS NULL").await, expected);
}

/// Starts an outbox and shuts it down, so that its subscriptions are registered and no node has them.
async fn register_only<DB: TestDatabase>(db: &Fresh<DB>, registry: ListenerRegistry) {
    let outbox = manual_poll(db, registry).start().await.unwrap();
    outbox.shutdown().await.unwrap();
}

fn writer<DB: TestDatabase>(db: &Fresh<DB>) -> Writer<DB> {
    Writer::new(db.pool.clone(), Table::default())
}

async fn write_bare<DB: TestDatabase>(writer: &Writer<DB>, events: &[EventEnvelope]) {
    let mut tx = writer.begin().await.unwrap();
    tx.write_all(events.iter().cloned()).unwrap();
    tx.commit().await.unwrap();
}

/// Returns what the deliveries of an event are like: subscription, status, attempts, and the attempts of its failures.
async fn deliveries<DB: TestDatabase>(
    outbox: &Outbox<DB>,
    event: &EventEnvelope,
) -> Vec<(String, Status, u32, Vec<u32>)> {
    let rows = outbox.admin().deliveries(event.event_id().to_string()).await.unwrap();
    rows.into_iter()
        .map(|row| {
            let failures = row.history.iter().map(|failure| failure.attempt).collect();
            (row.subscription, row.status, row.attempts, failures)
        })
        .collect()
}

fn delivery(
    name: &str,
    status: Status,
    attempts: u32,
    failures: &[u32],
) -> (String, Status, u32, Vec<u32>) {
    (name.to_owned(), status, attempts, failures.to_vec())
}

async fn each_subscription_is_delivered_at_its_own_pace<DB: TestDatabase>(db: Fresh<DB>) {
    let [unnamed, billing, mail] = [(); 3].map(|()| CallLog::default());
    let (fails, slow) = (Arc::new(AtomicBool::new(true)), Arc::new(Semaphore::new(0)));
    let registry = record(ListenerRegistry::new(), "", &unnamed);
    let registry = wait_for_permit(registry, "mail", &mail, &slow);
    let (calls, does_fail) = (billing.clone(), Arc::clone(&fails));
    let registry = subscribe(registry, named("billing").max_attempts(3), move |call: Delivery| {
        calls.record(&call);
        let fails = does_fail.load(Ordering::SeqCst);
        async move { if fails { Err("no credit") } else { Ok(()) } }
    });
    let counted = CountingMetrics::default();
    let outbox = manual_poll(&db, registry).metrics(counted.clone()).start().await.unwrap();
    let (hot, cold) = (event("A"), event("A"));
    write(&outbox, std::slice::from_ref(&hot)).await;
    unnamed.wait_for(1).await;
    mail.wait_for(1).await;
    assert_eq!((counted.enqueued(Lane::Hot), rows(&db, "subscription = '*'").await), (3, 0));
    eventually("billing gives up", async || with_status(&db, 3).await == 1).await;
    assert_eq!(rows(&db, "subscription = 'mail' AND status = 0").await, 1, "it runs");
    // The same through the poller: the writer has no hot queue.
    write_bare(&writer(&db), std::slice::from_ref(&cold)).await;
    outbox.poll_once().await.unwrap();
    unnamed.wait_for(2).await;
    eventually("billing gives up", async || with_status(&db, 3).await == 2).await;
    slow.add_permits(10);
    mail.wait_for(2).await;
    eventually("the others are done", async || with_status(&db, 1).await == 4).await;
    for event in [&hot, &cold] {
        let expected = [
            delivery("", Status::Done, 0, &[]),
            delivery("billing", Status::Dead, 3, &[1, 2, 3]),
            delivery("mail", Status::Done, 0, &[]),
        ];
        assert_eq!(deliveries(&outbox, event).await, expected);
    }
    let attempts: Vec<u32> = billing.calls().iter().map(|call| call.attempts).collect();
    assert_eq!(attempts.iter().sum::<u32>(), 2 * (1 + 2), "{attempts:?}");

    // The replay concerns one row.
    let id = hot.event_id().to_string();
    let dead = outbox.dead_events();
    assert!(dead.clone().of_subscription("mail").find(&id).await.unwrap().is_none());
    dead.clone().of_subscription("mail").replay(&id).await.unwrap_err();
    fails.store(false, Ordering::SeqCst);
    dead.clone().of_subscription("billing").replay(&id).await.unwrap();
    eventually("it is delivered", async || with_status(&db, 1).await == 5).await;
    let of_billing = delivery("billing", Status::Done, 0, &[1, 2, 3]);
    assert_eq!(deliveries(&outbox, &hot).await[1], of_billing, "its failures are kept");
    assert_eq!(deliveries(&outbox, &cold).await[1].1, Status::Dead);
    assert_eq!((unnamed.count(), mail.count(), billing.count()), (2, 2, 7));
    unnamed.assert_each_once(2);
    mail.assert_each_once(2);
    outbox.shutdown().await.unwrap();
}

async fn a_forward_receives_every_event_beside_a_listener<DB: TestDatabase>(db: Fresh<DB>) {
    let (registry, [unnamed]) = recording([""]);
    let (audit, calls) = (CallLog::default(), CallLog::default());
    let log = audit.clone();
    let outbox = manual_poll(&db, registry)
        .forward("audit", ForwardFilter::all(), move |delivery: Delivery| {
            log.record(&delivery);
            async {}
        })
        .forward("calls", ForwardFilter::new().event("Order", "C"), {
            let calls = calls.clone();
            move |delivery: Delivery| {
                calls.record(&delivery);
                async {}
            }
        })
        .start()
        .await
        .unwrap();
    let global = EventEnvelope::json("Started", "{}").unwrap();
    write(&outbox, &[event("A"), event("B"), event("C")]).await;
    write_bare(&writer(&db), &[event("A"), global]).await;
    outbox.poll_once().await.unwrap();
    all_delivered(&db, 5 + 2 + 1).await;
    let mut types = audit.types();
    types.sort();
    assert_eq!(types, ["A", "A", "B", "C", "Started"]);
    assert_eq!((unnamed.types(), calls.types()), (vec!["A".to_owned(); 2], vec!["C".to_owned()]));
    audit.assert_each_once(5);
    unnamed.assert_each_once(2);
    outbox.shutdown().await.unwrap();
}

async fn a_process_without_listeners_writes_for_registered_subscriptions<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    register_only(&db, recording(["", "billing", "mail"]).0).await;
    let writer = writer(&db);
    write_bare(&writer, &[event("A")]).await;
    let producer = outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).start().await.unwrap();
    write(&producer, &[event("A")]).await;
    for name in ["", "billing", "mail"] {
        assert_eq!(rows(&db, &format!("subscription = '{name}' AND status = 0")).await, 2);
    }
    // A writer that cannot read the registrations leaves it to the relay.
    db.run("ALTER TABLE outbox_subscription RENAME TO unreadable").await;
    let blind = self::writer(&db);
    write_bare(&blind, &[event("A")]).await;
    assert_eq!(rows(&db, "subscription = '*' AND status = 0").await, 1);
    db.run("ALTER TABLE unreadable RENAME TO outbox_subscription").await;
    assert_eq!(rows(&db, "status = 0").await, 7);
    let (registry, logs) = recording(["", "billing", "mail"]);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    eventually("all are delivered", async || with_status(&db, 1).await == 9).await;
    logs.iter().for_each(|log| log.assert_each_once(3));
    outbox.shutdown().await.unwrap();
    producer.shutdown().await.unwrap();
}

async fn a_transactional_listener_can_be_a_subscription<DB: TestDatabase>(db: Fresh<DB>) {
    db.run("CREATE TABLE effect (event_id VARCHAR(36) NOT NULL)").await;
    let (registry, [unnamed]) = recording([""]);
    let stock = CallLog::default();
    let calls = stock.clone();
    let registry = registry.register_in_tx(
        named("stock"),
        "Order",
        "A",
        move |delivery: Delivery, tx: &mut Tx<DB>| {
            let calls = calls.clone();
            Box::pin(async move {
                calls.record(&delivery);
                let id = delivery.envelope().event_id();
                let effect = format!("INSERT INTO effect VALUES ('{id}')");
                DB::run(&mut *tx, AssertSqlSafe(effect).into_sql_str()).await?;
                if delivery.attempts() == 0 {
                    return Err("once more".into());
                }
                Ok(Outcome::Done)
            })
        },
    );
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    let events: Vec<EventEnvelope> = (0..3).map(|_| event("A")).collect();
    write(&outbox, &events).await;
    expansion::insert_raw(&db, "raw", 2).await;
    outbox.poll_once().await.unwrap();
    all_delivered(&db, 10).await;
    assert_eq!(db.number("SELECT COUNT(*) FROM effect").await, 5);
    assert_eq!(db.number("SELECT COUNT(DISTINCT event_id) FROM effect").await, 5);
    assert_eq!((stock.count(), unnamed.count()), (10, 5), "each call of `stock` failed once");
    let expected = [delivery("", Status::Done, 0, &[]), delivery("stock", Status::Done, 1, &[1])];
    assert_eq!(deliveries(&outbox, &events[0]).await, expected);
    outbox.shutdown().await.unwrap();
}

async fn an_event_can_have_64_subscriptions<DB: TestDatabase>(db: Fresh<DB>) {
    let names: [&'static str; 64] = std::array::from_fn(|number| match number {
        0 => "",
        _ => &*format!("subscription-{number}").leak(),
    });
    let (registry, logs) = recording(names);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    let events: Vec<EventEnvelope> = (0..10).map(|_| event("A")).collect();
    write(&outbox, &events).await;
    expansion::insert_raw(&db, "raw", 5).await;
    outbox.poll_once().await.unwrap();
    all_delivered(&db, 15 * 64).await;
    logs.iter().for_each(|log| log.assert_each_once(15));
    outbox.shutdown().await.unwrap();
}

async fn an_event_is_written_once_though_it_has_several_rows<DB: TestDatabase>(db: Fresh<DB>) {
    let (registry, logs) = recording(["", "billing", "mail"]);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    let (first, second, third) = (event("A"), event("A"), event("B"));
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([first.clone(), second.clone(), third.clone()]).unwrap();
    let written = tx.flush().await.unwrap();
    let ids: Vec<_> = written.iter().map(|written| written.event_id).collect();
    assert_eq!(ids, [first.event_id(), second.event_id(), third.event_id()]);
    assert!(written.iter().all(|written| written.outcome == WriteOutcome::Inserted));
    // Twice in one transaction, before and after a flush.
    let fourth = event("A");
    tx.write_all([first.clone(), fourth.clone(), fourth.clone()]).unwrap();
    let outcomes: Vec<_> =
        tx.flush().await.unwrap().iter().map(|written| written.outcome).collect();
    let (new, duplicate) = (WriteOutcome::Inserted, WriteOutcome::Duplicate);
    assert_eq!(outcomes, [duplicate, new, duplicate]);
    tx.commit().await.unwrap();
    assert_eq!(rows(&db, "1 = 1").await, 3 * 3 + 1);
    let mut tx = outbox.begin().await.unwrap();
    tx.write(second.clone()).unwrap();
    let again = tx.flush().await.unwrap();
    assert_eq!((again.len(), again[0].outcome), (1, duplicate));
    assert_eq!((again[0].event_id, again[0].sequence), (second.event_id(), written[1].sequence));
    tx.commit().await.unwrap();
    eventually("they are delivered", async || with_status(&db, 1).await == 9).await;
    outbox.drained().await.unwrap();
    logs.iter().for_each(|log| log.assert_each_once(3));
    assert_eq!(rows(&db, "1 = 1").await, 10);
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    each_subscription_is_delivered_at_its_own_pace,
    a_forward_receives_every_event_beside_a_listener,
    a_process_without_listeners_writes_for_registered_subscriptions,
    a_transactional_listener_can_be_a_subscription,
    an_event_can_have_64_subscriptions,
    an_event_is_written_once_though_it_has_several_rows,
);
