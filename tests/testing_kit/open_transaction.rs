//! The methods of a test outbox while the test has a transaction open.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::{TestOutbox, assert_published, outbox_on};
use outbox_tests::{Fresh, TestDatabase, on_every_server};
use sqlx::Sqlite;

use crate::shop::{InMemory, PAID, Printer, SHIPPED, Setup, commit, run, shop_on};

/// Long enough to connect, and short enough for a test that waits that long.
const BRIEFLY: Duration = Duration::from_secs(3);

const HOUR: Duration = Duration::from_secs(3_600);

/// Starts a shop on a pool of this many connections.
pub(crate) async fn shop_with<DB: TestDatabase>(
    db: &Fresh<DB>,
    connections: u32,
) -> Arc<TestOutbox<DB>> {
    let pool = db.pool_of(connections, BRIEFLY).await;
    Arc::new(shop_on(outbox_on(pool), &Printer::default()).start().await)
}

/// Returns the text with which a future panics.
#[expect(clippy::disallowed_methods, reason = "the task is awaited")]
async fn panic_of<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> String {
    let Err(error) = tokio::spawn(work).await else { panic!("it does not panic") };
    *error.into_panic().downcast().expect("a text")
}

/// Returns the text with which a drain panics.
pub(crate) async fn panic_of_drain<DB: TestDatabase>(outbox: &Arc<TestOutbox<DB>>) -> String {
    let outbox = Arc::clone(outbox);
    panic_of(async move { outbox.drain().await }).await
}

async fn everything_works_beside_an_open_transaction<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = shop_with(&db, 2).await;
    commit(&outbox, SHIPPED).await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.write(PAID).unwrap();
    tx.flush().await.unwrap();

    // The listener's transaction needs the other connection.
    let report = outbox.drain().await;
    assert_eq!(report.delivered(), 2, "{report}");
    outbox.deliver(SHIPPED).await.unwrap();
    assert_published!(outbox.published().await, [SHIPPED, PAID, PAID]);
    outbox.clear().await;
    assert_published!(outbox.published().await, []);

    tx.commit().await.unwrap();
    assert_published!(outbox.published().await, [PAID]);
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn a_connection_is_waited_for_if_all_are_in_use<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = shop_with(&db, 2).await;
    let (_one, _two) = (outbox.begin().await.unwrap(), outbox.begin().await.unwrap());
    let text = panic_of_drain(&outbox).await;
    let message = "`drain` waits for a transaction that is still open; all 2 connections of the pool \
                   are in use: commit";
    assert!(text.contains(message), "{text}");
}

async fn an_event_locked_by_a_transaction_cannot_be_cleared<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = shop_with(&db, 2).await;
    commit(&outbox, PAID).await.unwrap();
    commit(&outbox, PAID).await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    run(&mut tx, "UPDATE outbox_event SET last_error = 'locked' WHERE sequence = 1").await;
    let clearing = Arc::clone(&outbox);
    let text = panic_of(async move { clearing.clear().await }).await;
    let message = "`clear` cannot delete 1 of 2 events, which a transaction has locked: commit";
    assert!(text.contains(message), "{text}");
    tx.rollback().await.unwrap();
    outbox.clear().await;
    assert_published!(outbox.published().await, []);
}

async fn every_connection_follows_the_clock<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = shop_with(&db, 5).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut tx = outbox.begin().await.unwrap();
        tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
        open.push(tx);
        outbox.clock().advance(HOUR);
    }
    for tx in open {
        tx.commit().await.unwrap();
    }
    let due = outbox.clock().now() + HOUR;
    assert!(outbox.published().await.iter().all(|event| event.available_at() == due));
    outbox.clock().advance(HOUR);
    assert_eq!(outbox.drain().await.delivered(), 4);
}

on_every_server! {
    every_connection_follows_the_clock,
    everything_works_beside_an_open_transaction,
    a_connection_is_waited_for_if_all_are_in_use,
    an_event_locked_by_a_transaction_cannot_be_cleared,
}

#[tokio::test]
async fn a_sqlite_file_can_be_read_beside_an_open_transaction_but_not_drained() {
    let db = Fresh::<Sqlite>::new().await.unwrap();
    let outbox = shop_with(&db, 3).await;
    commit(&outbox, PAID).await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.write(SHIPPED).unwrap();
    tx.flush().await.unwrap();
    assert_published!(outbox.published().await, [PAID]);
    let text = panic_of_drain(&outbox).await;
    let message = "`drain` waits for a transaction that is still open; SQLite permits one writer at a \
                   time: commit";
    assert!(text.contains(message), "{text}");
    tx.commit().await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 3);
}

#[tokio::test]
#[should_panic(
    expected = "`clear` waits for a transaction that is still open; the database of a test"
)]
async fn clear_panics_while_a_transaction_in_memory_is_open() {
    let outbox = InMemory.start(&Printer::default()).await;
    let _tx = outbox.begin().await.unwrap();
    outbox.clear().await;
}

#[tokio::test]
async fn a_second_transaction_in_memory_times_out() {
    let outbox = InMemory.start(&Printer::default()).await;
    let _tx = outbox.begin().await.unwrap();
    let error = outbox.begin().await.unwrap_err();
    assert!(matches!(error, outbox::Error::WriterLockTimeout { .. }), "{error:?}");
}
