//! How a service with an outbox is tested.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::Outcome;
use outbox::testing::{TestOutbox, assert_published, refute_published};

use crate::mail::{Mail, Mailer};
use crate::orders::{OrderError, OrderEvent, SCHEMA, TIME_TO_PAY, cancel, pay, place};

/// A mail server for tests: it keeps what it is given, or is down.
#[derive(Default)]
struct Letters {
    sent: Mutex<Vec<String>>,
    down: AtomicBool,
}

impl Letters {
    fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }
}

impl Mail for Letters {
    fn send(&self, order_id: i64, text: &str) -> io::Result<()> {
        if self.down.load(Ordering::SeqCst) {
            return Err(io::Error::other("the mail server is down"));
        }
        self.sent.lock().unwrap().push(format!("{order_id}: {text}"));
        Ok(())
    }
}

/// The shop on a database of its own, in memory, and its letters.
async fn shop() -> (TestOutbox, Arc<Letters>) {
    let letters = Arc::new(Letters::default());
    let mailer = Mailer(letters.clone());
    (outbox::testing::outbox().schema(SCHEMA).state(mailer).start().await, letters)
}

/// The same with order 7, and its confirmation sent.
async fn shop_with_order() -> (TestOutbox, Arc<Letters>) {
    let (outbox, letters) = shop().await;
    outbox.transaction(async |tx| place(tx, 7, 1200).await).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
    letters.sent.lock().unwrap().clear();
    (outbox, letters)
}

async fn state(outbox: &TestOutbox) -> Option<String> {
    let state = sqlx::query_scalar("SELECT state FROM orders WHERE id = 7");
    state.fetch_optional(outbox.pool()).await.unwrap()
}

// What the code under test publishes is known before anything is committed.

#[tokio::test]
async fn placing_an_order_announces_it_and_its_deadline() {
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
async fn an_order_that_is_paid_cannot_be_cancelled() {
    let (outbox, _) = shop_with_order().await;
    let mut tx = outbox.begin().await.unwrap();
    pay(&mut tx, 7).await.unwrap();
    assert!(matches!(cancel(&mut tx, 7).await, Err(OrderError::NotOpen(7))));
    assert_published!(tx, OrderEvent::Paid { order_id: 7 });
    refute_published!(tx, "Cancelled");
}

// What follows from it happens when the test says so.

#[tokio::test]
async fn whoever_places_an_order_hears_of_it() {
    let (outbox, letters) = shop().await;
    outbox.transaction(async |tx| place(tx, 7, 1200).await).await.unwrap();
    assert!(letters.sent().is_empty());
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 1, "{report}");
    assert_eq!(letters.sent(), ["7: thank you; please pay 1200 cents"]);
}

#[tokio::test]
async fn one_listener_is_called_with_one_event() {
    let (outbox, letters) = shop().await;
    let answer = outbox.deliver(OrderEvent::Paid { order_id: 8 }).await;
    assert_eq!(answer.unwrap(), Outcome::Done);
    assert_eq!(letters.sent(), ["8: here is your receipt"]);
}

// Time is the test's.

#[tokio::test]
async fn an_order_that_is_not_paid_in_time_is_cancelled() {
    let (outbox, letters) = shop_with_order().await;
    outbox.clock().advance(TIME_TO_PAY);
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 2, "{report}");
    assert_eq!(state(&outbox).await.as_deref(), Some("cancelled"));
    assert_published!(outbox.published().await, OrderEvent::Cancelled { order_id: 7 });
    assert_eq!(letters.sent(), ["7: your order is cancelled"]);
}

#[tokio::test]
async fn an_order_that_is_paid_in_time_stays() {
    let (outbox, _) = shop_with_order().await;
    outbox.transaction(async |tx| pay(tx, 7).await).await.unwrap();
    outbox.clock().advance(TIME_TO_PAY);
    assert_eq!(outbox.drain().await.delivered(), 2);
    assert_eq!(state(&outbox).await.as_deref(), Some("paid"));
    refute_published!(outbox.published().await, "Cancelled");
}

#[tokio::test]
async fn a_receipt_waits_for_the_mail_server() {
    let (outbox, letters) = shop_with_order().await;
    letters.down.store(true, Ordering::SeqCst);
    outbox.transaction(async |tx| pay(tx, 7).await).await.unwrap();
    let report = outbox.drain().await;
    assert_eq!(report.retried(), 1, "{report}");
    assert_eq!(report.events()[0].error.as_deref(), Some("the mail server is down"));

    letters.down.store(false, Ordering::SeqCst);
    assert_eq!(outbox.drain().await.delivered(), 0);
    outbox.clock().advance(Duration::from_secs(60));
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(letters.sent(), ["7: here is your receipt"]);
}

// And so is the connection.

#[tokio::test]
async fn an_order_that_cannot_be_committed_was_never_there() {
    let (outbox, letters) = shop().await;
    outbox.faults().commit().fail();
    outbox.transaction(async |tx| place(tx, 7, 1200).await).await.unwrap_err();
    assert_eq!(state(&outbox).await, None);
    assert_published!(outbox.published().await, []);
    assert_eq!(outbox.drain().await.delivered(), 0);
    assert!(letters.sent().is_empty());
}

#[tokio::test]
async fn an_order_whose_commit_was_not_answered_is_there_after_all() {
    let (outbox, letters) = shop().await;
    outbox.faults().commit().lose_answer();
    outbox.transaction(async |tx| place(tx, 7, 1200).await).await.unwrap_err();
    assert_eq!(state(&outbox).await.as_deref(), Some("open"));
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(letters.sent().len(), 1);
}

#[test]
fn the_program_runs() {
    crate::main().unwrap();
}
