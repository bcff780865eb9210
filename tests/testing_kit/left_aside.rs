//! Listeners that ask for a transaction of another database than that of the test.

use outbox::config::Unroutable;
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
use outbox::testing::DeliveryResult;
use outbox::{Outcome, Tx};
use outbox_tests::{Log, TestDatabase};
use sqlx::Postgres;

use crate::shop::{InMemory, OrderEvent, PAID, Printer, RETURNED, Setup, commit, on_every_setup};

/// Why `refund` cannot be called on SQLite.
const REASON: &str = "asks for a `Tx<Postgres>`, but the database of this test is `Sqlite`; test it with \
                      `outbox::testing::outbox_on(pool)` and a pool of `Postgres`";

/// Returns whether the database is the one that `refund` asks for.
fn is_postgres<S: Setup>(_: &S) -> bool {
    S::DB::SHORT_NAME == "postgres"
}

async fn only_listeners_of_this_database_are_called(setup: impl Setup) {
    let printer = Printer::default();
    let outbox = setup.with_event(&printer, RETURNED).await;
    commit(&outbox, PAID).await.unwrap();
    let report = outbox.drain().await;
    let (delivered, left_aside) = if is_postgres(&setup) { (2, 0) } else { (1, 1) };
    assert_eq!((report.delivered(), report.left_aside()), (delivered, left_aside), "{report}");
    assert_eq!(report.unroutable(), 0, "{report}");
    assert_eq!(printer.printed().contains(&"returned 7".to_owned()), is_postgres(&setup));
    // It stays as it is.
    assert_eq!(outbox.drain().await.left_aside(), left_aside);
}

async fn events_left_aside_do_not_become_dead(setup: impl Setup) {
    let printer = Printer::default();
    let shop = setup.shop(&printer).configure(|outbox| outbox.unroutable(Unroutable::Dead));
    let outbox = shop.start().await;
    commit(&outbox, RETURNED).await.unwrap();
    commit(&outbox, OrderEvent::Lost).await.unwrap();
    let report = outbox.drain().await;
    assert_eq!(report.dead(), 1, "{report}");
    assert_eq!(report.left_aside(), usize::from(!is_postgres(&setup)), "{report}");
}

on_every_setup! {
    only_listeners_of_this_database_are_called,
    events_left_aside_do_not_become_dead,
}

/// An event that needs no listener is settled without one, but this one has one.
#[tokio::test]
async fn an_event_that_needs_no_listener_waits_for_one_left_aside() {
    let registry = ListenerRegistry::new().register_in_tx(
        ListenerOptions::new(),
        "Order",
        "Archived",
        |_: Delivery, _: &mut Tx<Postgres>| Box::pin(async { Ok(Outcome::Done) }),
    );
    let outbox = outbox::testing::outbox().listeners(registry).start().await;
    commit(&outbox, OrderEvent::Archived).await.unwrap();
    let report = outbox.drain().await;
    assert_eq!((report.left_aside(), report.unroutable()), (1, 0), "{report}");
}

/// The state that `refund` asks for is not given either.
#[tokio::test]
async fn listeners_left_aside_are_named_in_the_log_and_in_the_report() {
    let (log, _guard) = Log::capture();
    let outbox = InMemory.with_event(&Printer::default(), RETURNED).await;
    let [line] = &log.with("left aside: ")[..] else { panic!("{:?}", log.with("")) };
    assert!(line.starts_with("WARN"), "{line}");
    assert!(line.contains("`testing_kit::shop::refund` (tests/testing_kit/shop.rs:"), "{line}");
    assert!(line.contains(REASON), "{line}");
    assert!(log.with("no listener handles `OrderEvent::Returned`").is_empty(), "it has a listener");

    let report = outbox.drain().await;
    let [reported] = report.events() else { panic!("{report}") };
    assert_eq!(reported.result, DeliveryResult::LeftAside);
    let error = reported.error.as_deref().unwrap();
    assert!(
        error.starts_with("`testing_kit::shop::refund` (") && error.ends_with(REASON),
        "{error}"
    );
    let id = reported.event_id();
    assert_eq!(report.to_string(), format!("1. Order/Returned {id}: left aside: {error}"));
}

#[tokio::test]
#[should_panic(
    expected = "asks for a `Tx<Postgres>`, but the database of this test is `Sqlite`; test it with \
                `outbox::testing::outbox_on(pool)` and a pool of `Postgres`"
)]
async fn delivering_to_a_listener_left_aside_panics() {
    let outbox = InMemory.start(&Printer::default()).await;
    let _ = outbox.deliver(RETURNED).await;
}
