//! Events written in transactions that the application began with sqlx.

use outbox_runtime::Error;
use outbox_runtime::store::StoreOf;
use outbox_tests::{Fresh, LoseTransaction, TestDatabase, TestTable, event, on_every_database};
use sqlx::SqlSafeStr;

use super::claim;
use super::write::{business, business_rows, writer};

async fn an_event_written_in_a_foreign_transaction_is_due<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, event("A")).await.unwrap().expect("a receipt");
    assert!(receipt.is_new());
    tx.commit().await.unwrap();
    drop(receipt);
    assert_eq!(probe.hot().len(), 0);
    assert_eq!(claim::all(writer.store(), "poller").await.rows.len(), 1);
}

async fn a_committed_receipt_delivers_through_the_hot_path<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 1).await;
    let mut receipts = Vec::new();
    let mut tx = db.pool.begin().await.unwrap();
    for name in ["A", "B"] {
        receipts.push(writer.write_in(&mut tx, event(name)).await.unwrap().unwrap());
    }
    tx.commit().await.unwrap();
    for receipt in receipts {
        writer.committed(receipt).await.unwrap();
    }
    let hot = probe.hot();
    assert_eq!((hot.len(), probe.due()), (1, 1), "one permit, and one left to the poller");
    let row = (&db, writer.store()).row(hot[0].0).await;
    assert_eq!((row.token, row.locked_by.as_deref()), (1, Some("probe")));
    assert_eq!(claim::all(writer.store(), "poller").await.rows.len(), 1);
}

async fn a_receipt_of_a_rolled_back_transaction_delivers_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, event("A")).await.unwrap().unwrap();
    tx.rollback().await.unwrap();
    writer.committed(receipt).await.unwrap();
    assert_eq!((probe.hot().len(), probe.free()), (0, 9));
}

async fn a_row_claimed_by_the_poller_is_not_delivered_by_its_receipt<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let (writer, probe) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, event("A")).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    assert_eq!(claim::all(writer.store(), "poller").await.rows.len(), 1);
    writer.committed(receipt).await.unwrap();
    assert_eq!((probe.hot().len(), probe.free()), (0, 9), "it was claimed by the poller");
}

async fn hooks_can_suppress_or_refuse_an_event<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    assert!(writer.write_in(&mut tx, event("Suppressed")).await.unwrap().is_none());
    assert!(writer.write_in(&mut tx, event("Refused")).await.is_err());
    let envelope = event("A");
    assert!(writer.write_in(&mut tx, envelope.clone()).await.unwrap().unwrap().is_new());
    let again = writer.write_in(&mut tx, envelope).await.unwrap().unwrap();
    assert!(!again.is_new(), "its id exists");
    tx.commit().await.unwrap();
    writer.committed(again).await.unwrap();
    assert_eq!((&db, writer.store()).count().await, 1);
}

/// The business write is gone, so the event must not be written.
async fn a_lost_transaction_is_refused<DB: LoseTransaction>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    business::<DB>(&mut tx, 50).await.unwrap();
    DB::lose(&db.pool, &mut tx, 1).await.expect_err("the transaction is lost");
    let refused = writer.write_in(&mut tx, event("A")).await;
    assert!(matches!(refused, Err(Error::TransactionLost)), "{refused:?}");
    // SQLite has already rolled back.
    let _ = tx.commit().await;
    assert_eq!((&db, writer.store()).count().await, 0, "no event without its business write");
    assert_eq!(business_rows(&db).await, 0);
}

async fn a_connection_without_a_transaction_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let mut connection = db.pool.acquire().await.unwrap();
    probe.hook_calls();
    let refused = writer.write_in(&mut connection, event("A")).await;
    assert!(matches!(refused, Err(Error::NoTransaction)), "{refused:?}");
    assert_eq!((&db, writer.store()).count().await, 0);
    assert_eq!(probe.hook_calls(), Vec::<String>::new(), "no hook is called");
    // A transaction that sqlx does not track is accepted.
    for (end, rows) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        DB::run(&mut connection, "BEGIN".into_sql_str()).await.unwrap();
        assert!(writer.write_in(&mut connection, event("A")).await.unwrap().unwrap().is_new());
        DB::run(&mut connection, end.into_sql_str()).await.unwrap();
        assert_eq!((&db, writer.store()).count().await, rows, "{end}");
    }
    assert!(
        writer.write_in(&mut connection, event("A")).await.is_err(),
        "the transaction has ended"
    );
}

async fn hooks_are_called_for_commit_and_rollback<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let first = event("A");
    for end in ["commit", "rollback", "duplicate"] {
        let mut tx = db.pool.begin().await.unwrap();
        let event = if end == "rollback" { event("A") } else { first.clone() };
        let receipt = writer.write_in(&mut tx, event).await.unwrap().unwrap();
        assert_eq!(probe.hook_calls(), ["before_write A", "after_write A"]);
        if end == "rollback" {
            tx.rollback().await.unwrap();
            writer.rolled_back(receipt);
            assert_eq!(probe.hook_calls(), ["after_rollback A"]);
            continue;
        }
        tx.commit().await.unwrap();
        writer.committed(receipt).await.unwrap();
        let expected = if end == "commit" { vec!["after_commit A"] } else { vec![] };
        assert_eq!(probe.hook_calls(), expected, "{end}: a duplicate is not reported as committed");
    }
    // Nor is it in a transaction of the writer.
    let mut tx = writer.begin().await.unwrap();
    tx.write_all([first.clone(), event("B")]).unwrap();
    probe.hook_calls();
    tx.commit().await.unwrap();
    assert_eq!(probe.hook_calls(), ["after_commit B"]);
    let mut tx = writer.begin().await.unwrap();
    tx.write_all([first, event("C")]).unwrap();
    tx.flush().await.unwrap();
    probe.hook_calls();
    tx.rollback().await.unwrap();
    assert_eq!(probe.hook_calls(), ["after_rollback C"]);
}

on_every_database!(
    a_lost_transaction_is_refused,
    a_connection_without_a_transaction_is_refused,
    hooks_are_called_for_commit_and_rollback,
    an_event_written_in_a_foreign_transaction_is_due,
    a_committed_receipt_delivers_through_the_hot_path,
    a_receipt_of_a_rolled_back_transaction_delivers_nothing,
    a_row_claimed_by_the_poller_is_not_delivered_by_its_receipt,
    hooks_can_suppress_or_refuse_an_event,
);
