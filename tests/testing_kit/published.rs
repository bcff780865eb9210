//! Events published in a transaction, and committed events.

use std::time::{Duration, SystemTime};

use outbox::testing::{assert_published, published, refute_published};
use outbox::{EventEnvelope, Tx};
use outbox_tests::{Fresh, Log, TestDatabase, on_every_database};

use crate::shop::{InMemory, OrderEvent, PAID, Printer, SHIPPED, Setup};

#[tokio::test]
async fn a_test_is_warned_of_a_dropped_transaction_with_events() {
    let outbox = InMemory.start(&Printer::default()).await;
    let (log, _log) = Log::capture();
    let mut tx = outbox.begin().await.unwrap();
    tx.write(PAID).unwrap();
    drop(tx);
    let lines = log.with("a transaction was dropped with events that were never committed");
    assert!(lines.len() == 1 && lines[0].starts_with("WARN"), "{lines:?}");
}

#[tokio::test]
async fn assertions_see_the_events_of_a_transaction() {
    let outbox = InMemory.start(&Printer::default()).await;
    let mut tx = outbox.begin().await.unwrap();
    assert_published!(tx, []);

    tx.write(PAID).unwrap();
    assert_published!(tx, PAID);
    assert_published!(&tx, "Paid");
    assert_published!(&mut tx, [PAID]);
    refute_published!(tx, OrderEvent::Paid { order_id: 8 });
    refute_published!(tx, "Placed");

    let mut part = tx.savepoint().await.unwrap();
    part.write(OrderEvent::Lost).unwrap();
    part.rollback().await.unwrap();
    refute_published!(tx, OrderEvent::Lost);

    tx.write(SHIPPED).unwrap();
    assert_published!(tx, [PAID, "Shipped"]);
    tx.rollback().await.unwrap();
    assert_published!(outbox.published().await, []);
}

#[tokio::test]
async fn published_returns_all_committed_events() {
    let outbox = InMemory.start(&Printer::default()).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all([PAID, OrderEvent::Lost]).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
    let committed = outbox.published().await;
    assert_published!(committed, [PAID, OrderEvent::Lost]);
    assert_eq!(committed[0].aggregate_id(), Some("7"));
}

#[tokio::test]
async fn only_fields_set_on_the_expected_event_are_compared() {
    let outbox = InMemory.start(&Printer::default()).await;
    let mut tx = outbox.begin().await.unwrap();
    let hour = Duration::from_secs(3_600);
    let event = outbox::event(PAID).tenant("acme").header("by", "card").header("at", "till");
    tx.write(event.deliver_after(hour)).unwrap();

    assert_published!(tx, PAID);
    assert_published!(tx, outbox::event(PAID).tenant("acme"));
    refute_published!(tx, outbox::event(PAID).tenant("other"));
    assert_published!(tx, outbox::event(PAID).header("by", "card"));
    refute_published!(tx, outbox::event(PAID).header("by", "cash"));
    refute_published!(tx, outbox::event(PAID).header("for", "tea"));
    assert_published!(tx, outbox::event(PAID).deliver_after(hour));
    refute_published!(tx, outbox::event(PAID).deliver_after(hour * 2));
    refute_published!(tx, outbox::event(PAID).aggregate_id("8"));
    refute_published!(tx, outbox::event(PAID).aggregate_type("Basket"));
    refute_published!(tx, outbox::event(PAID).event_id("paid-8"));
    tx.write(outbox::event(PAID).event_id("paid-8").occurred_at(SystemTime::UNIX_EPOCH)).unwrap();
    assert_published!(tx, outbox::event(PAID).event_id("paid-8"));
    assert_published!(tx, outbox::event(PAID).occurred_at(SystemTime::UNIX_EPOCH));
    refute_published!(tx, outbox::event(PAID).occurred_at(SystemTime::UNIX_EPOCH + hour));

    // The order of keys and whitespace are irrelevant.
    tx.write(EventEnvelope::json("Raw", r#"{ "b": 1, "a": 2 }"#).unwrap()).unwrap();
    assert_published!(tx, EventEnvelope::json("Raw", r#"{"a":2,"b":1}"#).unwrap());
    refute_published!(tx, EventEnvelope::json("Raw", r#"{"a":2}"#).unwrap());
    refute_published!(tx, EventEnvelope::json("Raw", r#"{"a":2,"b":1,"c":0}"#).unwrap());
}

async fn flushed_events_are_published_and_duplicates_are_not<DB: TestDatabase>(db: Fresh<DB>) {
    let writer = outbox::builder(db.pool.clone()).mode(outbox::config::Mode::WriterOnly);
    let outbox = writer.start().await.unwrap();
    let mut tx: Tx<DB> = outbox.begin().await.unwrap();
    let paid = || outbox::event(PAID).event_id("1");
    tx.write(paid()).unwrap();
    tx.flush().await.unwrap();
    tx.write(SHIPPED).unwrap();
    assert_published!(tx, [PAID, SHIPPED]);
    tx.write(paid()).unwrap();
    tx.flush().await.unwrap();
    assert_published!(tx, [PAID, SHIPPED]);
    assert_eq!(published(&tx)[0].event_id().as_str(), "1");
    tx.commit().await.unwrap();
}

on_every_database! { flushed_events_are_published_and_duplicates_are_not }
