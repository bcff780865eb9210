//! Transactions that are not ours.

use outbox_tests::{Fresh, Rows, TestDatabase, event, on_every_database};

use super::claim;
use super::write::writer;

async fn a_row_in_a_plain_transaction_is_due<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, event("A")).await.unwrap().expect("a receipt");
    assert!(receipt.is_new());
    tx.commit().await.unwrap();
    drop(receipt);
    assert_eq!(recorder.hot().len(), 0);
    assert_eq!(claim::all(writer.store(), "poller").await.rows.len(), 1);
}

async fn a_receipt_makes_it_hot<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 1).await;
    let mut receipts = Vec::new();
    let mut tx = db.pool.begin().await.unwrap();
    for name in ["A", "B"] {
        receipts.push(writer.write_in(&mut tx, event(name)).await.unwrap().unwrap());
    }
    tx.commit().await.unwrap();
    for receipt in receipts {
        writer.committed(receipt).await.unwrap();
    }
    let hot = recorder.hot();
    assert_eq!((hot.len(), recorder.due()), (1, 1), "one seat, and one for the poller");
    let row = (&db, writer.store()).row(hot[0].0).await;
    assert_eq!((row.token, row.locked_by.as_deref()), (1, Some("recorder")));
    assert_eq!(claim::all(writer.store(), "poller").await.rows.len(), 1);
}

async fn a_receipt_of_a_rolled_back_transaction_delivers_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, event("A")).await.unwrap().unwrap();
    tx.rollback().await.unwrap();
    writer.committed(receipt).await.unwrap();
    assert_eq!((recorder.hot().len(), recorder.free()), (0, 9));
}

async fn a_poller_may_be_faster_than_the_receipt<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, event("A")).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    assert_eq!(claim::all(writer.store(), "poller").await.rows.len(), 1);
    writer.committed(receipt).await.unwrap();
    assert_eq!((recorder.hot().len(), recorder.free()), (0, 9), "it is the poller's");
}

async fn hooks_have_their_say<DB: TestDatabase>(db: Fresh<DB>) {
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

on_every_database!(
    a_row_in_a_plain_transaction_is_due,
    a_receipt_makes_it_hot,
    a_receipt_of_a_rolled_back_transaction_delivers_nothing,
    a_poller_may_be_faster_than_the_receipt,
    hooks_have_their_say,
);
