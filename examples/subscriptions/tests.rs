//! Tests of the subscriptions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use outbox::event::{EventId, Status};
use outbox::testing::TestOutbox;
use sqlx::sqlite::SqlitePoolOptions;

use super::*;
use orders::place;

/// Starts an outbox in memory, whose clock the test controls, and places an order.
async fn outbox(billing: Billing) -> (TestOutbox, Log, EventId) {
    let log = Log::default();
    let outbox = outbox::testing::outbox().schema(orders::SCHEMA);
    let outbox = outbox.state(billing).state(log.clone()).configure(with_audit).start().await;
    let event_id = outbox.transaction(async |tx| place(tx, 7, 1200).await).await;
    (outbox, log, event_id.unwrap().unwrap())
}

/// Returns the subscription, the status and the number of failed attempts of each row of an event.
async fn rows(outbox: &TestOutbox, event_id: EventId) -> Vec<(String, Status, u32)> {
    let rows = outbox.admin().deliveries(event_id).await.unwrap();
    rows.into_iter().map(|row| (row.subscription, row.status, row.attempts)).collect()
}

fn row(subscription: &str, status: Status, attempts: u32) -> (String, Status, u32) {
    (subscription.to_owned(), status, attempts)
}

#[tokio::test]
async fn one_event_has_a_row_for_each_listener() {
    let (outbox, log, event_id) = outbox(Billing::failing(0)).await;
    assert_eq!(outbox.drain().await.delivered(), 4);
    let done = ["", "audit", "billing", "mail"].map(|name| row(name, Status::Done, 0));
    assert_eq!(rows(&outbox, event_id).await, done);
    assert_eq!(log.of("stock"), ["reserve order 7"]);
    assert_eq!(log.of("mail"), ["confirm order 7"]);
    assert_eq!(log.of("audit"), ["Placed 7"]);
}

#[tokio::test]
async fn a_failure_is_retried_alone() {
    let (outbox, log, event_id) = outbox(Billing::failing(1)).await;
    let report = outbox.drain().await;
    assert_eq!((report.delivered(), report.retried()), (3, 1));
    let expected = [
        row("", Status::Done, 0),
        row("audit", Status::Done, 0),
        row("billing", Status::Retry, 1),
        row("mail", Status::Done, 0),
    ];
    assert_eq!(rows(&outbox, event_id).await, expected);
    outbox.clock().advance(Duration::from_secs(1));
    assert_eq!(outbox.drain().await.delivered(), 1);
    let no_response = "invoice of order 7: the billing system does not respond";
    assert_eq!(log.of("billing"), [no_response, "invoice of order 7: 1200 cents"]);
    assert_eq!(log.of("mail"), ["confirm order 7"], "it is not repeated");
}

#[tokio::test]
async fn a_dead_letter_is_replayed_for_its_subscription() {
    let (outbox, log, event_id) = outbox(Billing::failing(5)).await;
    for attempt in 1..=5 {
        assert_eq!(outbox.drain().await.dead(), usize::from(attempt == 5));
        outbox.clock().advance(Duration::from_secs(1));
    }
    assert_eq!(rows(&outbox, event_id).await[2], row("billing", Status::Dead, 5));
    let failures = outbox.admin().deliveries(event_id).await.unwrap()[2].history.len();
    assert_eq!(failures, 5);
    outbox.dead_events().of_subscription("billing").replay(event_id).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(rows(&outbox, event_id).await[2], row("billing", Status::Done, 0));
    assert_eq!((log.of("stock").len(), log.of("mail").len()), (1, 1), "they are not repeated");
}

/// The column is left out, so a relay finds out who receives the event.
#[tokio::test]
async fn a_row_of_another_program_reaches_every_listener() {
    let (outbox, log, _) = outbox(Billing::failing(0)).await;
    let insert = "
        INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, available_at, created_at)
        VALUES ('raw', 'Placed', 'Order', '{\"order_id\": 8, \"cents\": 5}', 0, 0)";
    sqlx::raw_sql(insert).execute(outbox.pool()).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 8);
    assert_eq!(log.of("stock"), ["reserve order 8", "reserve order 7"]);
    assert_eq!((log.of("billing").len(), log.of("mail").len(), log.of("audit").len()), (2, 2, 2));
}

/// The same with a running outbox.
#[tokio::test]
async fn every_listener_receives_its_events() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:");
    let log = Log::default();
    run(&pool.await.unwrap(), Billing::failing(2), &log).await.unwrap();
    let mut stock = log.of("stock");
    stock.sort();
    assert_eq!(stock, ["release order 7", "reserve order 7"]);
    assert_eq!(log.of("billing").len(), 3);
    assert_eq!(log.of("mail"), ["confirm order 7"]);
    let mut audit = log.of("audit");
    audit.sort();
    assert_eq!(audit, ["Cancelled 7", "Placed 7"]);
}

#[test]
fn the_program_runs() {
    main().unwrap();
}
