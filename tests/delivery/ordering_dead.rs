//! Dead letters in ordered outboxes: they block their aggregate or are skipped, and are replayed, discarded and kept.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{self, AtomicBool};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::admin::{BlockReason, DoctorOptions, FindingLevel, Table};
use outbox::config::{OnDead, Ordering, PurgeConfig};
use outbox::dead::{DeadEvents, DeadFilter};
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::metrics::MetricsExporter;
use outbox::{Builder, EventEnvelope, ListenerError, Outbox};
use outbox_runtime::store::StoreOf;
use outbox_tests::{Fresh, TestDatabase, TestTable, eventually, on_every_database};

use crate::harness::{HOUR, listen, with_status, write};

/// Which events were delivered, by aggregate, and which ones are refused.
#[derive(Debug, Clone, Default)]
struct Deliveries(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    delivered: HashMap<String, Vec<u64>>,
    refused: HashSet<(String, u64)>,
}

impl Deliveries {
    fn refuse(&self, aggregate: u64, numbers: impl IntoIterator<Item = u64>) {
        let numbers = numbers.into_iter().map(|number| (aggregate.to_string(), number));
        self.0.lock().unwrap().refused.extend(numbers);
    }

    fn accept_all(&self) {
        self.0.lock().unwrap().refused.clear();
    }

    fn of(&self, aggregate: u64) -> Vec<u64> {
        let state = self.0.lock().unwrap();
        state.delivered.get(&aggregate.to_string()).cloned().unwrap_or_default()
    }

    /// Waits until these events of an aggregate are delivered, and no others.
    async fn wait_for(&self, aggregate: u64, numbers: &[u64]) {
        eventually("they are delivered", async || self.of(aggregate).len() >= numbers.len()).await;
        assert_eq!(self.of(aggregate), numbers, "of aggregate {aggregate}");
    }

    /// The same, and sooner than the poller would find them by itself.
    async fn wait_briefly_for(&self, aggregate: u64, numbers: &[u64]) {
        let begun = Instant::now();
        self.wait_for(aggregate, numbers).await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }

    fn listener(&self, registry: ListenerRegistry, name: &str) -> ListenerRegistry {
        let deliveries = self.clone();
        listen(registry, name, move |delivery: Delivery| {
            let event = delivery.envelope();
            let aggregate = event.aggregate_id().unwrap_or_default().to_owned();
            let number = event.payload().as_str().parse().unwrap();
            let mut state = deliveries.0.lock().unwrap();
            let is_refused = state.refused.contains(&(aggregate.clone(), number));
            if !is_refused {
                state.delivered.entry(aggregate).or_default().push(number);
            }
            async move { if is_refused { Err(ListenerError::permanent("refused")) } else { Ok(()) } }
        })
    }
}

/// Returns event `number` of an aggregate; its id is `aggregate-number`.
fn numbered(name: &str, aggregate: u64, number: u64) -> EventEnvelope {
    let event = EventEnvelope::builder(name).event_id(format!("{aggregate}-{number}"));
    let event = event.aggregate_type("Order").aggregate_id(aggregate.to_string());
    event.payload_json(number.to_string()).build().unwrap()
}

fn events(aggregate: u64, numbers: impl IntoIterator<Item = u64>) -> Vec<EventEnvelope> {
    numbers.into_iter().map(|number| numbered("A", aggregate, number)).collect()
}

/// Returns the builder of an ordered outbox that polls only if it is woken.
fn ordered<DB: TestDatabase>(
    db: &Fresh<DB>,
    deliveries: &Deliveries,
    on_dead: OnDead,
) -> Builder<DB> {
    let registry = deliveries.listener(ListenerRegistry::new(), "A");
    let builder = outbox::builder(db.pool.clone()).listeners(registry).poll_interval(HOUR);
    builder.order(Ordering::PerAggregate).on_dead(on_dead)
}

/// Starts an outbox in which the first of three events of aggregate 1 is dead, and those of others are delivered.
async fn with_dead_head<DB: TestDatabase>(
    db: &Fresh<DB>,
    deliveries: &Deliveries,
    on_dead: OnDead,
) -> Outbox<DB> {
    deliveries.refuse(1, [1]);
    let outbox = ordered(db, deliveries, on_dead).start().await.unwrap();
    write(&outbox, &events(1, 1..=3)).await;
    eventually("the first is dead", async || with_status(db, 3).await == 1).await;
    write(&outbox, &events(2, 1..=3)).await;
    deliveries.wait_for(2, &[1, 2, 3]).await;
    deliveries.accept_all();
    outbox
}

/// Puts the events that wait below the low watermark, as if they had waited for a minute.
async fn wait_a_minute<DB: TestDatabase>(db: &Fresh<DB>, outbox: &Outbox<DB>) {
    (db, outbox.store()).age(Duration::from_secs(60)).await;
}

async fn a_replayed_dead_letter_comes_before_the_events_that_waited<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let deliveries = Deliveries::default();
    let outbox = with_dead_head(&db, &deliveries, OnDead::Block).await;
    outbox.drained().await.unwrap();
    assert!(deliveries.of(1).is_empty(), "the dead letter blocks");
    let blocked = outbox.admin().blocked(10).await.unwrap();
    assert_eq!(blocked.len(), 1, "{blocked:?}");
    assert_eq!((blocked[0].event_id.as_str(), blocked[0].waiting), ("1-1", 2));
    outbox.dead_events().replay("1-1").await.unwrap();
    deliveries.wait_for(1, &[1, 2, 3]).await;
    assert!(outbox.admin().blocked(10).await.unwrap().is_empty());
    outbox.shutdown().await.unwrap();
}

async fn replaying_all_dead_letters_keeps_their_order<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    deliveries.refuse(1, 1..=3);
    let skipping = ordered(&db, &deliveries, OnDead::Skip).start().await.unwrap();
    write(&skipping, &events(1, 1..=3)).await;
    eventually("they are dead", async || with_status(&db, 3).await == 3).await;
    skipping.shutdown().await.unwrap();
    deliveries.accept_all();
    let outbox = ordered(&db, &deliveries, OnDead::Block).start().await.unwrap();
    write(&outbox, &events(1, 4..=5)).await;
    outbox.drained().await.unwrap();
    assert!(deliveries.of(1).is_empty(), "the dead letters block");
    // One at a time: those that are replayed wait for those that are still dead.
    let filter = DeadFilter::new().aggregate_id("1");
    assert_eq!(outbox.dead_events().replay_all(&filter, 1).await.unwrap(), 3);
    deliveries.wait_for(1, &[1, 2, 3, 4, 5]).await;
    outbox.shutdown().await.unwrap();
}

/// The poller sleeps for an hour, and looks only above its low watermark unless it is told otherwise.
async fn a_discarded_dead_letter_unblocks_its_aggregate<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let outbox = with_dead_head(&db, &deliveries, OnDead::Block).await;
    wait_a_minute(&db, &outbox).await;
    outbox.dead_events().discard("1-1", "a test").await.unwrap();
    deliveries.wait_briefly_for(1, &[2, 3]).await;
    deliveries.refuse(1, [4]);
    write(&outbox, &events(1, 4..=5)).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    wait_a_minute(&db, &outbox).await;
    outbox.dead_events().discard_all(&DeadFilter::new(), "a test").await.unwrap();
    deliveries.wait_briefly_for(1, &[2, 3, 5]).await;
    outbox.shutdown().await.unwrap();
}

/// For example the command line, which cannot wake the poller.
async fn a_dead_letter_that_another_program_discards_is_noticed<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let outbox = with_dead_head(&db, &deliveries, OnDead::Block).await;
    outbox.shutdown().await.unwrap();
    let node = ordered(&db, &deliveries, OnDead::Block).poll_interval(Duration::from_millis(50));
    let node = node.start().await.unwrap();
    write(&node, &events(2, [4])).await;
    deliveries.wait_for(2, &[1, 2, 3, 4]).await;
    wait_a_minute(&db, &node).await;
    let other = DeadEvents::new(db.pool.clone(), Table::default());
    other.discard("1-1", "a test").await.unwrap();
    deliveries.wait_for(1, &[2, 3]).await;
    node.shutdown().await.unwrap();
}

async fn a_discarded_pending_event_unblocks_its_aggregate<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let outbox = ordered(&db, &deliveries, OnDead::Block).start().await.unwrap();
    let delayed = EventEnvelope::builder("A").aggregate_type("Order").aggregate_id("1");
    let delayed = delayed.event_id("late").payload_json("1").deliver_after(HOUR);
    write(&outbox, &[delayed.build().unwrap()]).await;
    write(&outbox, &events(1, 2..=3)).await;
    write(&outbox, &events(2, [1])).await;
    deliveries.wait_for(2, &[1]).await;
    outbox.drained().await.unwrap();
    assert!(deliveries.of(1).is_empty(), "the delayed event blocks");
    let blocked = outbox.admin().blocked(10).await.unwrap();
    assert_eq!((blocked[0].reason, blocked[0].waiting), (BlockReason::Delayed, 2));
    // The delayed event is still not due.
    wait_a_minute(&db, &outbox).await;
    outbox.admin().discard("late", "a test").await.unwrap();
    deliveries.wait_briefly_for(1, &[2, 3]).await;
    outbox.shutdown().await.unwrap();
}

async fn a_skipped_dead_letter_is_replayed_late<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let outbox = with_dead_head(&db, &deliveries, OnDead::Skip).await;
    deliveries.wait_for(1, &[2, 3]).await;
    assert!(outbox.admin().blocked(10).await.unwrap().is_empty());
    write(&outbox, &events(1, [4])).await;
    deliveries.wait_for(1, &[2, 3, 4]).await;
    outbox.dead_events().replay("1-1").await.unwrap();
    deliveries.wait_for(1, &[2, 3, 4, 1]).await;
    outbox.shutdown().await.unwrap();
}

/// A rolling deploy: the new program writes events that the old one has no listener for.
async fn an_event_without_a_listener_blocks_until_a_node_has_one<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    let old = ordered(&db, &deliveries, OnDead::Block).start().await.unwrap();
    write(&old, &[numbered("B", 1, 1), numbered("A", 1, 2), numbered("A", 2, 1)]).await;
    deliveries.wait_for(2, &[1]).await;
    old.drained().await.unwrap();
    assert!(deliveries.of(1).is_empty());
    (&db, old.store()).age(Duration::from_secs(90)).await;
    let blocked = old.admin().blocked(10).await.unwrap();
    assert_eq!(blocked.len(), 1, "{blocked:?}");
    let head = (blocked[0].reason, blocked[0].event_type.as_str(), blocked[0].waiting);
    assert_eq!(head, (BlockReason::NotClaimed, "B", 1));
    let findings = old.admin().doctor(&DoctorOptions::new()).await.unwrap();
    let found = findings.iter().find(|finding| finding.subject == "order").unwrap();
    assert_eq!(found.level, FindingLevel::Warning, "{found}");
    assert!(found.what.contains("Order 1 by B 1-1"), "{found}");
    assert!(found.remedy.contains("a process that has listeners"), "{found}");
    let registry = deliveries.listener(ListenerRegistry::new(), "A");
    let registry = deliveries.listener(registry, "B");
    let new = ordered(&db, &deliveries, OnDead::Block).listeners(registry).start().await.unwrap();
    deliveries.wait_for(1, &[1, 2]).await;
    old.shutdown().await.unwrap();
    new.shutdown().await.unwrap();
}

/// Records the gauge of blocked aggregates.
#[derive(Debug, Default, Clone)]
struct Gauge(Arc<Mutex<Vec<usize>>>);

impl MetricsExporter for Gauge {
    fn blocked_aggregates(&self, aggregates: usize) {
        self.0.lock().unwrap().push(aggregates);
    }
}

impl Gauge {
    async fn first(&self) -> usize {
        eventually("it is reported", async || !self.0.lock().unwrap().is_empty()).await;
        self.0.lock().unwrap()[0]
    }
}

async fn blocked_aggregates_are_a_gauge<DB: TestDatabase>(db: Fresh<DB>) {
    let (deliveries, before, after) = (Deliveries::default(), Gauge::default(), Gauge::default());
    let node = |gauge: &Gauge| ordered(&db, &deliveries, OnDead::Block).metrics(gauge.clone());
    let first = node(&before).start().await.unwrap();
    assert_eq!(before.first().await, 0);
    deliveries.refuse(1, [1]);
    deliveries.refuse(2, [1]);
    // Nothing waits behind the dead letter of aggregate 2.
    write(&first, &events(1, 1..=3)).await;
    write(&first, &events(2, [1])).await;
    eventually("both are dead", async || with_status(&db, 3).await == 2).await;
    let second = node(&after).start().await.unwrap();
    assert_eq!(after.first().await, 1);
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

async fn a_running_outbox_does_not_purge_what_blocks<DB: TestDatabase>(db: Fresh<DB>) {
    let deliveries = Deliveries::default();
    deliveries.refuse(1, [1]);
    let purge = PurgeConfig::new().dead_retention(Duration::from_millis(1));
    let outbox = ordered(&db, &deliveries, OnDead::Block);
    let outbox = outbox.purge(purge.interval(Duration::from_millis(20))).start().await.unwrap();
    // As if the database user may not record the order.
    db.run("UPDATE outbox_schema SET ordered = NULL").await;
    write(&outbox, &events(1, 1..=2)).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    // One without an aggregate, which died later, is purged.
    (&db, outbox.store()).insert_due(&[numbered("A", 3, 1)]).await;
    db.run(format!(
        "UPDATE outbox_event SET status = 3, done_at = {}, aggregate_id = NULL WHERE event_id = '3-1'",
        DB::NOW
    ))
    .await;
    eventually("one is purged", async || with_status(&db, 3).await == 1).await;
    assert!(outbox.admin().find("1-1").await.unwrap().is_some(), "the other one blocks");
    outbox.shutdown().await.unwrap();
}

/// An event that fails once, and behind it one that cannot be decoded: both are due together.
async fn an_undecodable_event_does_not_block_the_one_before_it<DB: TestDatabase>(db: Fresh<DB>) {
    let (deliveries, store) = (Deliveries::default(), db.store().await);
    (&db, &store).insert_due(&events(1, 1..=3)).await;
    db.run("UPDATE outbox_event SET headers = '[]' WHERE event_id = '1-2'").await;
    let (failed, seen) = (Arc::new(AtomicBool::new(false)), deliveries.clone());
    let registry = listen(ListenerRegistry::new(), "A", move |delivery: Delivery| {
        let fails = !failed.swap(true, atomic::Ordering::Relaxed);
        let number = delivery.envelope().payload().as_str().parse().unwrap();
        if !fails {
            seen.0.lock().unwrap().delivered.entry("1".to_owned()).or_default().push(number);
        }
        async move { if fails { Err("once") } else { Ok(()) } }
    });
    let outbox = ordered(&db, &deliveries, OnDead::Block).listeners(registry).max_attempts(9);
    let outbox = outbox.retry_base(Duration::from_millis(300)).start().await.unwrap();
    deliveries.wait_for(1, &[1]).await;
    eventually("the second is dead", async || with_status(&db, 3).await == 1).await;
    outbox.dead_events().discard("1-2", "a test").await.unwrap();
    deliveries.wait_for(1, &[1, 3]).await;
    outbox.shutdown().await.unwrap();
}

/// More of them than one claim takes of an aggregate, and an event behind them.
async fn an_event_follows_undecodable_ones_at_once<DB: TestDatabase>(db: Fresh<DB>) {
    let (deliveries, store) = (Deliveries::default(), db.store().await);
    (&db, &store).insert_due(&events(1, 1..=17)).await;
    (&db, &store).age(Duration::from_secs(60)).await;
    db.run("UPDATE outbox_event SET headers = '[]' WHERE event_id <> '1-17'").await;
    let outbox = ordered(&db, &deliveries, OnDead::Skip).start().await.unwrap();
    deliveries.wait_briefly_for(1, &[17]).await;
    assert_eq!(with_status(&db, 3).await, 16);
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    an_undecodable_event_does_not_block_the_one_before_it,
    an_event_follows_undecodable_ones_at_once,
    a_replayed_dead_letter_comes_before_the_events_that_waited,
    replaying_all_dead_letters_keeps_their_order,
    a_discarded_dead_letter_unblocks_its_aggregate,
    a_dead_letter_that_another_program_discards_is_noticed,
    a_discarded_pending_event_unblocks_its_aggregate,
    a_skipped_dead_letter_is_replayed_late,
    an_event_without_a_listener_blocks_until_a_node_has_one,
    blocked_aggregates_are_a_gauge,
    a_running_outbox_does_not_purge_what_blocks,
);
