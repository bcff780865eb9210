//! Calling one listener.

use std::time::Duration;

use outbox::listener::{Delivery, ListenerErrorKind, ListenerRegistry};
use outbox::testing::assert_published;
use outbox::{EventEnvelope, Outcome};

use crate::shop::{
    Answer, InMemory, OrderEvent, PAID, Printer, SHIPPED, Setup, on_every_setup, parcels,
};

async fn deliver_returns_the_listeners_outcome(setup: impl Setup) {
    let hour = Duration::from_secs(3_600);
    let printer = Printer::with([Answer::Later(hour), Answer::Permanent]);
    let outbox = setup.start(&printer).await;
    assert_eq!(outbox.deliver(PAID).await.unwrap(), Outcome::RetryAfter(hour));
    let error = outbox.deliver(PAID).await.unwrap_err();
    assert_eq!(error.kind(), ListenerErrorKind::Permanent);
    let by_card = outbox::event(PAID).header("by", "card");
    assert_eq!(outbox.deliver(by_card).attempts(2).await.unwrap(), Outcome::Done);
    assert_eq!(printer.printed()[2], "paid 7 by card, 2 failed");
    assert_published!(outbox.published().await, []);
}

async fn the_payload_is_decoded_from_json(setup: impl Setup) {
    let outbox = setup.start(&Printer::default()).await;
    let wrong_payload = EventEnvelope::builder("Paid").aggregate_type("Order").payload_json("[]");
    let error = outbox.deliver(wrong_payload).await.unwrap_err();
    assert_eq!(error.kind(), ListenerErrorKind::Decode);
}

async fn the_transaction_is_committed_only_on_success(setup: impl Setup) {
    let printer = Printer::with([Answer::Fail, Answer::Later(Duration::from_secs(1))]);
    let outbox = setup.start(&printer).await;
    outbox.deliver(SHIPPED).await.unwrap_err();
    outbox.deliver(SHIPPED).await.unwrap();
    assert_eq!(parcels(&outbox).await, 0);
    assert_published!(outbox.published().await, []);
    outbox.deliver(SHIPPED).await.unwrap();
    assert_eq!(parcels(&outbox).await, 1);
    assert_published!(outbox.published().await, [PAID]);
}

#[tokio::test]
#[should_panic(expected = "the printer explodes")]
async fn a_panic_of_the_listener_reaches_the_test() {
    let outbox = InMemory.start(&Printer::with([Answer::Panic])).await;
    let _ = outbox.deliver(PAID).await;
}

#[tokio::test]
#[should_panic(
    expected = "no listener handles Order/Lost; the listeners are\n  __GLOBAL__/Found: a manually \
                registered listener"
)]
async fn delivering_an_unroutable_event_panics() {
    let registry = ListenerRegistry::new().register("Found", |_: Delivery| async {});
    let outbox = outbox::testing::outbox().listeners(registry).start().await;
    let _ = outbox.deliver(OrderEvent::Lost).await;
}

on_every_setup! {
    deliver_returns_the_listeners_outcome,
    the_payload_is_decoded_from_json,
    the_transaction_is_committed_only_on_success,
}
