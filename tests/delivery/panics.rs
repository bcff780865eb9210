//! What is stored of a panic.

use outbox::Tx;
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
use outbox_tests::{Fresh, Log, TestDatabase, event, eventually, on_every_database};

use crate::harness::{first_row, manual_poll, with_status, write};

/// Returns the error of a dead event whose listener panics, and what was logged about it.
async fn dead<DB: TestDatabase>(
    db: &Fresh<DB>,
    registry: ListenerRegistry,
    redact: bool,
) -> (String, String) {
    let (log, _guard) = Log::capture();
    let builder = manual_poll(db, registry).max_attempts(1);
    let builder = if redact { builder.redact_panics() } else { builder };
    let outbox = builder.start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is dead", async || with_status(db, 3).await == 1).await;
    let error = first_row(db, &outbox).await.last_error.unwrap();
    outbox.shutdown().await.unwrap();
    db.run("DELETE FROM outbox_event").await;
    (error, log.with("the event is dead").concat())
}

const LINE: u32 = line!() + 3;

async fn charge(delivery: Delivery) {
    panic!("card 4111 of {} items", delivery.attempts());
}

fn charging() -> ListenerRegistry {
    ListenerRegistry::new().register_for("Order", "A", charge)
}

async fn a_panic_is_stored_with_its_place_and_its_text<DB: TestDatabase>(db: Fresh<DB>) {
    let (error, _) = dead(&db, charging(), false).await;
    let place = format!("the listener panicked at tests/delivery/panics.rs:{LINE}");
    assert_eq!(error, format!("{place}: card 4111 of 0 items"));
    let (error, _) = dead(&db, charging(), true).await;
    assert_eq!(error, place);
}

async fn the_panic_of_a_transactional_listener_is_stored<DB: TestDatabase>(db: Fresh<DB>) {
    let registry = ListenerRegistry::new().register_in_tx(
        ListenerOptions::new(),
        "Order",
        "A",
        |_: Delivery, _: &mut Tx<DB>| Box::pin(async { panic!("after {} items", 3) }),
    );
    let (error, _) = dead(&db, registry, false).await;
    assert!(error.starts_with("the listener panicked at tests/delivery/panics.rs:"), "{error}");
    assert!(error.ends_with(": after 3 items"), "{error}");
}

async fn exaggerate(_: Delivery) {
    panic!("a\0b\nc{}", "ü".repeat(10_000));
}

async fn the_text_of_a_panic_is_sanitised_and_cut<DB: TestDatabase>(db: Fresh<DB>) {
    let registry = ListenerRegistry::new().register_for("Order", "A", exaggerate);
    let (error, _) = dead(&db, registry, false).await;
    assert!(error.contains(": ab cü"), "{error}");
    assert_eq!((error.chars().count(), error.chars().last()), (4_000, Some('…')));
}

async fn delegate(_: Delivery) {
    let task: tokio::task::JoinHandle<()> = tokio::spawn(async { panic!("elsewhere") });
    let error = task.await.unwrap_err();
    std::panic::resume_unwind(error.into_panic());
}

/// The panic of a task is not that of the listener which has spawned it.
async fn the_panic_of_another_task_has_no_place_here<DB: TestDatabase>(db: Fresh<DB>) {
    let registry = ListenerRegistry::new().register_for("Order", "A", delegate);
    let (error, _) = dead(&db, registry, false).await;
    assert_eq!(error, "the listener panicked: elsewhere");
}

/// On one thread, whose log is captured.
#[tokio::test]
async fn the_log_has_what_is_stored() {
    let db = Fresh::<sqlx::Sqlite>::new().await.unwrap();
    for redact in [false, true] {
        let (error, logged) = dead(&db, charging(), redact).await;
        assert!(logged.contains(&format!("error={error:?}")), "{logged}");
        assert_eq!(logged.contains("4111"), !redact, "{logged}");
    }
}

on_every_database!(
    a_panic_is_stored_with_its_place_and_its_text,
    the_panic_of_a_transactional_listener_is_stored,
    the_text_of_a_panic_is_sanitised_and_cut,
    the_panic_of_another_task_has_no_place_here,
);
