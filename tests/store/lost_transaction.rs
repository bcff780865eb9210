//! Transactions that the database has ended behind the caller's back: a business statement fails, the
//! caller passes over it, writes an event and commits.

use outbox_runtime::Error;
use outbox_runtime::store::{NewRow, Seated};
use outbox_runtime::write::{Tx, Writer};
use outbox_tests::{Fresh, Losable, Recorder, Rows, event, on_every_database};
use sqlx::SqlSafeStr;

use super::write::{business, business_rows, writer};

/// Has a transaction ended by the database; the failure is passed over.
async fn lose<DB: Losable>(db: &Fresh<DB>, connection: &mut DB::Connection) {
    DB::lose(&db.pool, connection, 1).await.expect_err("the transaction is lost");
}

/// Nothing was written or dispatched, and the connection is as good as new.
async fn nothing_happened<DB: Losable>(db: &Fresh<DB>, writer: &Writer<DB>, recorder: &Recorder) {
    assert_eq!((db, writer.store()).count().await, 0, "no row");
    assert_eq!((recorder.hot().len(), recorder.due()), (0, 0), "no delivery");
    assert_eq!(recorder.free(), 9, "no seat is kept");
    for id in 100..124 {
        let mut tx = writer.begin().await.expect("a clean connection");
        business::<DB>(&mut tx, id).await.expect("a clean connection");
        tx.rollback().await.unwrap();
    }
    let mut tx = writer.begin().await.unwrap();
    business::<DB>(&mut tx, 99).await.unwrap();
    tx.write(event("Good")).unwrap();
    tx.commit().await.unwrap();
    assert_eq!((db, writer.store()).count().await, 1);
}

fn is_lost(result: Result<(), Error>) {
    let error = result.expect_err("there is nothing to commit");
    assert!(matches!(error, Error::TransactionLost), "{error:?}");
}

async fn a_lost_transaction_is_not_committed<DB: Losable>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 9).await;
    let mut tx = writer.begin().await.unwrap();
    lose(&db, &mut tx).await;
    tx.write(event("A")).unwrap();
    recorder.told();
    is_lost(tx.commit().await);
    assert_eq!(recorder.told(), ["after_rollback A"]);
    nothing_happened(&db, &writer, &recorder).await;
}

async fn nor_after_an_early_flush<DB: Losable>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 9).await;
    for with_more in [false, true] {
        let mut tx = writer.begin().await.unwrap();
        tx.write(event("A")).unwrap();
        tx.flush().await.unwrap();
        lose(&db, &mut tx).await;
        if with_more {
            tx.write(event("B")).unwrap();
        }
        is_lost(tx.commit().await);
        assert_eq!((&db, writer.store()).count().await, 0);
    }
    nothing_happened(&db, &writer, &recorder).await;
}

async fn nor_flushed<DB: Losable>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 9).await;
    let mut tx: Tx<DB> = writer.begin().await.unwrap();
    lose(&db, &mut tx).await;
    tx.write(event("A")).unwrap();
    assert!(matches!(tx.flush().await, Err(Error::TransactionLost)));
    is_lost(tx.commit().await);
    nothing_happened(&db, &writer, &recorder).await;
}

async fn nor_with_a_savepoint_in_between<DB: Losable>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 9).await;
    for end in ["rollback", "release", "drop"] {
        let mut tx = writer.begin().await.unwrap();
        tx.write(event("A")).unwrap();
        let mut savepoint = tx.savepoint().await.unwrap();
        lose(&db, &mut savepoint).await;
        savepoint.write(event("B")).unwrap();
        let ended = match end {
            "rollback" => savepoint.rollback().await,
            "release" => savepoint.release().await,
            _ => {
                drop(savepoint);
                Ok(())
            }
        };
        // On PostgreSQL going back to the savepoint makes the rest whole again.
        let whole = DB::URL_VARIABLE == Some("OUTBOX_TEST_POSTGRES_URL");
        assert_eq!(ended.is_ok(), end == "drop" || whole && end == "rollback", "{end}");
        if whole {
            tx.rollback().await.unwrap();
        } else {
            is_lost(tx.commit().await);
        }
        assert_eq!((&db, writer.store()).count().await, 0, "{end}");
    }
    nothing_happened(&db, &writer, &recorder).await;
}

async fn a_lost_transaction_can_be_rolled_back_or_dropped<DB: Losable>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 9).await;
    for dropped in [false, true] {
        let mut tx = writer.begin().await.unwrap();
        lose(&db, &mut tx).await;
        tx.write(event("A")).unwrap();
        if dropped {
            drop(tx);
        } else {
            tx.rollback().await.unwrap();
        }
    }
    nothing_happened(&db, &writer, &recorder).await;
}

/// What happens without all that: the event is inserted when it is written, and sqlx commits.
async fn the_naive_order_gets_it_wrong<DB: Losable>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    business::<DB>(&mut tx, 50).await.unwrap();
    lose(&db, &mut tx).await;
    let row = NewRow { envelope: &event("A"), seated: Seated::No };
    let inserted = writer.store().insert(&mut tx, &[row]).await;
    let committed = tx.commit().await;
    let event_stayed = (&db, writer.store()).count().await == 1;
    let business_stayed = business_rows(&db).await == 1;
    assert!(!business_stayed, "the business write is gone");
    let told_of_success = committed.is_ok();
    // Either an event without its business, or a commit that never was.
    assert!(event_stayed || told_of_success, "{inserted:?}");
}

/// On MySQL and MariaDB, a statement that changes the schema commits what came before it.
async fn a_statement_may_commit<DB: Losable>(db: Fresh<DB>) {
    if DB::SHORT_NAME != "mysql" {
        return;
    }
    let (writer, recorder) = writer(&db, 9).await;
    let ddl = "CREATE TABLE IF NOT EXISTS other (id INT)";
    let mut tx = writer.begin().await.unwrap();
    business::<DB>(&mut tx, 1).await.unwrap();
    tx.write(event("Before")).unwrap();
    tx.flush().await.unwrap();
    DB::run(&mut tx, ddl.into_sql_str()).await.unwrap();
    tx.write(event("After")).unwrap();
    recorder.told();
    let error = tx.commit().await.expect_err("it was committed before");
    assert!(matches!(error, Error::CommittedEarly), "{error:?}");
    assert_eq!(recorder.told(), ["after_commit Before", "after_rollback After"]);
    assert_eq!(recorder.hot().len(), 1, "what is committed is delivered");
    assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (1, 1));

    // A rollback is not taken for a commit because an event with that id was there before.
    let known = event("Known");
    let mut tx = writer.begin().await.unwrap();
    tx.write(known.clone()).unwrap();
    tx.commit().await.unwrap();
    db.run("CREATE TABLE IF NOT EXISTS locks (id INT PRIMARY KEY, n INT)").await;
    let mut tx = writer.begin().await.unwrap();
    tx.write_all([event("RolledBack"), known]).unwrap();
    tx.flush().await.unwrap();
    recorder.told();
    lose(&db, &mut tx).await;
    is_lost(tx.commit().await);
    assert_eq!(recorder.told(), ["after_rollback RolledBack"]);
    assert_eq!((recorder.hot().len(), (&db, writer.store()).count().await), (2, 2));
    db.run("DELETE FROM outbox_event WHERE event_type = 'Known'").await;

    // Without an event in it, nothing tells a commit from a rollback.
    let mut tx = writer.begin().await.unwrap();
    business::<DB>(&mut tx, 2).await.unwrap();
    DB::run(&mut tx, ddl.into_sql_str()).await.unwrap();
    tx.write(event("After")).unwrap();
    let error = tx.commit().await.expect_err("it was committed before");
    assert!(matches!(error, Error::TransactionLost), "{error:?}");
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
    assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (2, 1));
}

on_every_database!(
    a_statement_may_commit,
    a_lost_transaction_is_not_committed,
    nor_after_an_early_flush,
    nor_flushed,
    nor_with_a_savepoint_in_between,
    a_lost_transaction_can_be_rolled_back_or_dropped,
    the_naive_order_gets_it_wrong,
);
