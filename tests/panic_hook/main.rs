//! The panic hook of the application, before and after an outbox is started.
//!
//! This is a binary of its own with a single test: a process has one panic hook.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::EventEnvelope;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::testing::TestOutbox;

static FIRST_HOOK: AtomicUsize = AtomicUsize::new(0);
static SECOND_HOOK: AtomicUsize = AtomicUsize::new(0);

async fn print(_: Delivery) {
    panic!("the printer explodes");
}

/// Writes an event and returns the error of its delivery.
async fn error(outbox: &TestOutbox) -> String {
    let mut tx = outbox.begin().await.unwrap();
    tx.write(EventEnvelope::json("Paid", "{}").unwrap()).unwrap();
    tx.commit().await.unwrap();
    let report = outbox.drain().await;
    report.events()[0].error.clone().unwrap()
}

#[tokio::test]
async fn the_application_keeps_its_panic_hook() {
    std::panic::set_hook(Box::new(|_| {
        FIRST_HOOK.fetch_add(1, Ordering::SeqCst);
    }));
    let registry = ListenerRegistry::new().register("Paid", print);
    let outbox = outbox::testing::outbox()
        .listeners(registry)
        .configure(|outbox| outbox.max_attempts(1))
        .start()
        .await;
    let known = error(&outbox).await;
    let expected = "the listener panicked at tests/panic_hook/main.rs:";
    assert!(known.starts_with(expected) && known.ends_with(": the printer explodes"), "{known}");
    assert_eq!(FIRST_HOOK.load(Ordering::SeqCst), 1, "the application's hook was called");

    // An application that replaces the hook later loses the place.
    std::panic::set_hook(Box::new(|_| {
        SECOND_HOOK.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(error(&outbox).await, "the listener panicked: the printer explodes");
    assert_eq!(SECOND_HOOK.load(Ordering::SeqCst), 1);
    let _ = std::panic::take_hook();
}
