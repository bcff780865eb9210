//! Tests of a service with an outbox.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::Outcome;
use outbox::testing::{TestOutbox, assert_published, refute_published};

use crate::mail::{Mail, Mailer};
use crate::orders::{OrderError, OrderEvent, SCHEMA, TIME_TO_PAY, cancel, pay, place};

/// A mail server for tests: it records mails, or is down.
#[derive(Default)]
struct MailRecorder {
    sent: Mutex<Vec<String>>,
    down: AtomicBool,
}

impl MailRecorder {
    fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }
}

impl Mail for MailRecorder {
    fn send(&self, order_id: i64, text: &str) -> io::Result<()> {
        if self.down.load(Ordering::SeqCst) {
            return Err(io::Error::other("the mail server is down"));
        }
        self.sent.lock().unwrap().push(format!("{order_id}: {text}"));
        Ok(())
    }
}

/// Starts the shop on its own in-memory database. Returns it with the mails.
async fn shop() -> (TestOutbox, Arc<MailRecorder>) {
    let mails = Arc::new(MailRecorder::default());
    let mailer = Mailer(mails.clone());
    (outbox::testing::outbox().schema(SCHEMA).state(mailer).start().await, mails)
}

/// Starts the shop with order 7 placed and its confirmation sent.
async fn shop_with_order() -> (TestOutbox, Arc<MailRecorder>) {
    let (outbox, mails) = shop().await;
    outbox.transaction(async |tx| place(tx, 7, 1200).await).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
    mails.sent.lock().unwrap().clear();
    (outbox, mails)
}

async fn state(outbox: &TestOutbox) -> Option<String> {
    let state = sqlx::query_scalar("SELECT state FROM orders WHERE id = 7");
    state.fetch_optional(outbox.pool()).await.unwrap()
}

// Published events can be checked before the commit.

#[tokio::test]
async fn placing_an_order_publishes_it_and_its_deadline() {
    let (outbox, _) = shop().await;
    let mut tx = outbox.begin().await.unwrap();
    place(&mut tx, 7, 1200).await.unwrap();
    let deadline = OrderEvent::PaymentDue { order_id: 7 };
    assert_published!(
        tx,
        [
            OrderEvent::Placed { order_id: 7, total_cents: 1200 },
            outbox::event(deadline).deliver_after(TIME_TO_PAY),
        ]
    );
}

#[tokio::test]
async fn a_paid_order_cannot_be_cancelled() {
    let (outbox, _) = shop_with_order().await;
    let mut tx = outbox.begin().await.unwrap();
    pay(&mut tx, 7).await.unwrap();
    assert!(matches!(cancel(&mut tx, 7).await, Err(OrderError::NotOpen(7))));
    assert_published!(tx, OrderEvent::Paid { order_id: 7 });
    refute_published!(tx, "Cancelled");
}

// Events are delivered when the test calls `drain` or `deliver`.

#[tokio::test]
async fn the_customer_gets_a_confirmation() {
    let (outbox, mails) = shop().await;
    outbox.transaction(async |tx| place(tx, 7, 1200).await).await.unwrap();
    assert!(mails.sent().is_empty());
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 1, "{report}");
    assert_eq!(mails.sent(), ["7: thank you; please pay 1200 cents"]);
}

#[tokio::test]
async fn a_single_event_can_be_delivered() {
    let (outbox, mails) = shop().await;
    let outcome = outbox.deliver(OrderEvent::Paid { order_id: 8 }).await;
    assert_eq!(outcome.unwrap(), Outcome::Done);
    assert_eq!(mails.sent(), ["8: here is your receipt"]);
}

// The test controls the clock.

#[tokio::test]
async fn an_unpaid_order_is_cancelled_after_the_deadline() {
    let (outbox, mails) = shop_with_order().await;
    outbox.clock().advance(TIME_TO_PAY);
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 2, "{report}");
    assert_eq!(state(&outbox).await.as_deref(), Some("cancelled"));
    assert_published!(outbox.published().await, OrderEvent::Cancelled { order_id: 7 });
    assert_eq!(mails.sent(), ["7: your order is cancelled"]);
}

#[tokio::test]
async fn an_order_paid_in_time_is_not_cancelled() {
    let (outbox, _) = shop_with_order().await;
    outbox.transaction(async |tx| pay(tx, 7).await).await.unwrap();
    outbox.clock().advance(TIME_TO_PAY);
    assert_eq!(outbox.drain().await.delivered(), 2);
    assert_eq!(state(&outbox).await.as_deref(), Some("paid"));
    refute_published!(outbox.published().await, "Cancelled");
}

#[tokio::test]
async fn a_receipt_is_retried_until_the_mail_server_is_up() {
    let (outbox, mails) = shop_with_order().await;
    mails.down.store(true, Ordering::SeqCst);
    outbox.transaction(async |tx| pay(tx, 7).await).await.unwrap();
    let report = outbox.drain().await;
    assert_eq!(report.retried(), 1, "{report}");
    assert_eq!(report.events()[0].error.as_deref(), Some("the mail server is down"));

    mails.down.store(false, Ordering::SeqCst);
    assert_eq!(outbox.drain().await.delivered(), 0);
    outbox.clock().advance(Duration::from_secs(60));
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(mails.sent(), ["7: here is your receipt"]);
}

// The test can inject database faults.

#[tokio::test]
async fn an_order_whose_commit_fails_does_not_exist() {
    let (outbox, mails) = shop().await;
    outbox.faults().commit().fail();
    outbox.transaction(async |tx| place(tx, 7, 1200).await).await.unwrap_err();
    assert_eq!(state(&outbox).await, None);
    assert_published!(outbox.published().await, []);
    assert_eq!(outbox.drain().await.delivered(), 0);
    assert!(mails.sent().is_empty());
}

#[tokio::test]
async fn an_order_whose_commit_response_is_lost_exists() {
    let (outbox, mails) = shop().await;
    outbox.faults().commit().lose_answer();
    outbox.transaction(async |tx| place(tx, 7, 1200).await).await.unwrap_err();
    assert_eq!(state(&outbox).await.as_deref(), Some("open"));
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(mails.sent().len(), 1);
}

#[test]
fn the_program_runs() {
    crate::main().unwrap();
}
