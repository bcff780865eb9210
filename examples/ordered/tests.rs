//! Tests of the order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use outbox::testing::TestOutbox;
use sqlx::sqlite::SqlitePoolOptions;

use super::*;
use accounts::{deposit, withdraw};

/// Starts an outbox in memory, whose clock the test controls. The bank does not respond to the first attempt of each
/// deposit to account 7.
async fn outbox(order: Ordering) -> (TestOutbox, Bank) {
    let bank = Bank::unreliable_for(7);
    let outbox = outbox::testing::outbox().schema(accounts::SCHEMA).state(bank.clone());
    let outbox = outbox.configure(move |outbox| outbox.order(order)).start().await;
    outbox.transaction(async |tx| deposit(tx, 7, 100).await).await.unwrap();
    outbox.transaction(async |tx| withdraw(tx, 7, 80).await).await.unwrap();
    outbox.transaction(async |tx| deposit(tx, 8, 20).await).await.unwrap();
    outbox.transaction(async |tx| withdraw(tx, 8, 20).await).await.unwrap();
    (outbox, bank)
}

/// Delivers what is due, and lets the pause before a retry pass.
async fn drain(outbox: &TestOutbox) -> usize {
    let report = outbox.drain().await;
    outbox.clock().advance(Duration::from_secs(1));
    report.delivered()
}

#[tokio::test]
async fn a_deposit_that_fails_holds_back_the_withdrawal() {
    let (outbox, bank) = outbox(Ordering::PerAggregate).await;
    drain(&outbox).await;
    assert_eq!(bank.lines(7), ["+100: the bank does not respond"]);
    drain(&outbox).await;
    let expected = ["+100: the bank does not respond", "+100: balance 100", "-80: balance 20"];
    assert_eq!(bank.lines(7), expected);
}

#[tokio::test]
async fn the_other_account_is_not_delayed() {
    let (outbox, bank) = outbox(Ordering::PerAggregate).await;
    assert_eq!(drain(&outbox).await, 2);
    assert_eq!(bank.lines(8), ["+20: balance 20", "-20: balance 0"]);
    assert_eq!(bank.lines(7).len(), 1, "account 7 still waits for its first event");
}

/// What the order prevents: the withdrawal overtakes the deposit, and is dead.
#[tokio::test]
async fn without_an_order_the_withdrawal_is_refused() {
    let (outbox, bank) = outbox(Ordering::Unordered).await;
    drain(&outbox).await;
    let expected = ["+100: the bank does not respond", "-80: the account would be overdrawn"];
    assert_eq!(bank.lines(7), expected);
}

/// The same with a running outbox.
#[tokio::test]
async fn everything_is_booked_in_order() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:");
    let bank = Bank::unreliable_for(7);
    run(&pool.await.unwrap(), &bank).await.unwrap();
    let expected = [
        "+100: the bank does not respond",
        "+100: balance 100",
        "-80: balance 20",
        "+30: the bank does not respond",
        "+30: balance 50",
        "-50: balance 0",
    ];
    assert_eq!(bank.lines(7), expected);
    assert_eq!(bank.lines(8), ["+20: balance 20", "-20: balance 0"]);
}

#[test]
fn the_program_runs() {
    main().unwrap();
}
