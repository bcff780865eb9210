//! Pools of one connection.

use std::time::Duration;

use outbox::testing::outbox_on;
use outbox_tests::{Fresh, TestDatabase, on_every_database};

use crate::open_transaction::{panic_of_drain, shop_with};
use crate::shop::{PAID, Printer, Refunds, commit, shop_on};

const HOUR: Duration = Duration::from_secs(3_600);

async fn the_only_connection_is_waited_for<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = shop_with(&db, 1).await;
    let tx = outbox.begin().await.unwrap();
    let text = panic_of_drain(&outbox).await;
    let message = "`drain` waits for a transaction that is still open; the database of a test has one \
                   connection: commit the transaction, roll it back or drop it first";
    assert!(text.contains(message), "{text}");
    assert!(text.starts_with("tests/testing_kit/open_transaction.rs:"), "{text}");
    // A dropped transaction is rolled back in the background.
    drop(tx);
    assert_eq!(outbox.drain().await.to_string(), "nothing was due");
}

async fn a_cancelled_begin_releases_the_connection<DB: TestDatabase>(db: Fresh<DB>) {
    let outbox = shop_with(&db, 1).await;
    outbox.faults().begin().hang();
    let limit = Duration::from_millis(50);
    tokio::time::timeout(limit, outbox.begin()).await.unwrap_err();
    commit(&outbox, PAID).await.unwrap();
    assert_eq!(outbox.drain().await.delivered(), 1);
}

async fn two_outboxes_on_one_connection_have_two_clocks<DB: TestDatabase>(db: Fresh<DB>) {
    let pool = db.pool_of(1, Duration::from_secs(30)).await;
    let printer = Printer::default();
    let first = shop_on(outbox_on(pool.clone()), &printer).start().await;
    let second = outbox_on(pool).state(printer.clone()).state(Refunds);
    let second = second.configure(|outbox| outbox.table("other_event")).start().await;
    for outbox in [&first, &second] {
        let mut tx = outbox.begin().await.unwrap();
        tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
        tx.commit().await.unwrap();
    }
    second.clock().advance(HOUR);
    assert_eq!(first.drain().await.delivered(), 0);
    assert_eq!(second.drain().await.delivered(), 1);
    assert_eq!(first.drain().await.delivered(), 0);
}

on_every_database! {
    the_only_connection_is_waited_for,
    a_cancelled_begin_releases_the_connection,
    two_outboxes_on_one_connection_have_two_clocks,
}
