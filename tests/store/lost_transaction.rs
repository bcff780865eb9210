//! Transactions that the database has ended without the caller noticing: a business statement fails, the
//! caller ignores the error, writes an event and commits.

use outbox_runtime::Error;
use outbox_runtime::event::Recipient;
use outbox_runtime::store::{InitialState, NewRow, StoreOf};
use outbox_runtime::write::{Tx, Writer};
use outbox_tests::{Fresh, LoseTransaction, TestTable, WriterProbe, event, on_every_database};
use sqlx::SqlSafeStr;

use super::write::{business, business_rows, writer};

/// Makes the database end the transaction, and ignores the error.
async fn lose<DB: LoseTransaction>(db: &Fresh<DB>, connection: &mut DB::Connection) {
    DB::lose(&db.pool, connection, 1).await.expect_err("the transaction is lost");
}

/// Asserts that nothing was written or dispatched, and that the connections of the pool are clean.
async fn assert_nothing_written<DB: LoseTransaction>(
    db: &Fresh<DB>,
    writer: &Writer<DB>,
    probe: &WriterProbe,
) {
    assert_eq!((db, writer.store()).count().await, 0, "no row");
    assert_eq!((probe.hot().len(), probe.due()), (0, 0), "no delivery");
    assert_eq!(probe.free(), 9, "no permit is leaked");
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

fn assert_lost(result: Result<(), Error>) {
    let error = result.expect_err("there is nothing to commit");
    assert!(matches!(error, Error::TransactionLost), "{error:?}");
}

async fn a_lost_transaction_is_not_committed<DB: LoseTransaction>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let mut tx = writer.begin().await.unwrap();
    lose(&db, &mut tx).await;
    tx.write(event("A")).unwrap();
    probe.hook_calls();
    assert_lost(tx.commit().await);
    assert_eq!(probe.hook_calls(), ["after_rollback A"]);
    assert_nothing_written(&db, &writer, &probe).await;
}

async fn a_transaction_lost_after_a_flush_is_not_committed<DB: LoseTransaction>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    for with_more in [false, true] {
        let mut tx = writer.begin().await.unwrap();
        tx.write(event("A")).unwrap();
        tx.flush().await.unwrap();
        lose(&db, &mut tx).await;
        if with_more {
            tx.write(event("B")).unwrap();
        }
        assert_lost(tx.commit().await);
        assert_eq!((&db, writer.store()).count().await, 0);
    }
    assert_nothing_written(&db, &writer, &probe).await;
}

async fn a_lost_transaction_cannot_be_flushed<DB: LoseTransaction>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let mut tx: Tx<DB> = writer.begin().await.unwrap();
    lose(&db, &mut tx).await;
    tx.write(event("A")).unwrap();
    assert!(matches!(tx.flush().await, Err(Error::TransactionLost)));
    assert_lost(tx.commit().await);
    assert_nothing_written(&db, &writer, &probe).await;
}

async fn a_transaction_lost_in_a_savepoint_is_not_committed<DB: LoseTransaction>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
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
        // On PostgreSQL, rolling back to the savepoint recovers the transaction.
        let recovers = DB::URL_VARIABLE == Some("OUTBOX_TEST_POSTGRES_URL");
        assert_eq!(ended.is_ok(), end == "drop" || recovers && end == "rollback", "{end}");
        if recovers {
            tx.rollback().await.unwrap();
        } else {
            assert_lost(tx.commit().await);
        }
        assert_eq!((&db, writer.store()).count().await, 0, "{end}");
    }
    assert_nothing_written(&db, &writer, &probe).await;
}

async fn a_lost_transaction_can_be_rolled_back_or_dropped<DB: LoseTransaction>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
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
    assert_nothing_written(&db, &writer, &probe).await;
}

/// Shows the problem without the guard: the event is inserted immediately, and sqlx commits.
async fn without_the_guard_a_lost_transaction_goes_unnoticed<DB: LoseTransaction>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    business::<DB>(&mut tx, 50).await.unwrap();
    lose(&db, &mut tx).await;
    let row =
        NewRow { envelope: &event("A"), state: InitialState::Due, recipient: &Recipient::Unnamed };
    let inserted = writer.store().insert(&mut tx, &[row]).await;
    let committed = tx.commit().await;
    let event_stayed = (&db, writer.store()).count().await == 1;
    let business_stayed = business_rows(&db).await == 1;
    assert!(!business_stayed, "the business write is gone");
    let reported_success = committed.is_ok();
    // Either an event without its business write, or a commit that was never made.
    assert!(event_stayed || reported_success, "{inserted:?}");
}

/// On MySQL and MariaDB, a statement that changes the schema commits the transaction implicitly.
async fn an_implicit_commit_is_reported<DB: LoseTransaction>(db: Fresh<DB>) {
    if DB::SHORT_NAME != "mysql" {
        return;
    }
    let (writer, probe) = writer(&db, 9).await;
    let ddl = "CREATE TABLE IF NOT EXISTS other (id INT)";
    let mut tx = writer.begin().await.unwrap();
    business::<DB>(&mut tx, 1).await.unwrap();
    tx.write(event("Before")).unwrap();
    tx.flush().await.unwrap();
    DB::run(&mut tx, ddl.into_sql_str()).await.unwrap();
    tx.write(event("After")).unwrap();
    probe.hook_calls();
    let error = tx.commit().await.expect_err("it was committed before");
    assert!(matches!(error, Error::CommittedEarly), "{error:?}");
    assert_eq!(probe.hook_calls(), ["after_commit Before", "after_rollback After"]);
    assert_eq!(probe.hot().len(), 1, "the committed event is delivered");
    assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (1, 1));

    // A rollback is not mistaken for a commit because an event with that id existed before.
    let known = event("Known");
    let mut tx = writer.begin().await.unwrap();
    tx.write(known.clone()).unwrap();
    tx.commit().await.unwrap();
    db.run("CREATE TABLE IF NOT EXISTS locks (id INT PRIMARY KEY, n INT)").await;
    let mut tx = writer.begin().await.unwrap();
    tx.write_all([event("RolledBack"), known]).unwrap();
    tx.flush().await.unwrap();
    probe.hook_calls();
    lose(&db, &mut tx).await;
    assert_lost(tx.commit().await);
    assert_eq!(probe.hook_calls(), ["after_rollback RolledBack"]);
    assert_eq!((probe.hot().len(), (&db, writer.store()).count().await), (2, 2));
    db.run("DELETE FROM outbox_event WHERE event_type = 'Known'").await;

    // Without an event in it, a commit cannot be distinguished from a rollback.
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
    an_implicit_commit_is_reported,
    a_lost_transaction_is_not_committed,
    a_transaction_lost_after_a_flush_is_not_committed,
    a_lost_transaction_cannot_be_flushed,
    a_transaction_lost_in_a_savepoint_is_not_committed,
    a_lost_transaction_can_be_rolled_back_or_dropped,
    without_the_guard_a_lost_transaction_goes_unnoticed,
);
