//! A transaction of the application that SQLite has ended by itself, and that sqlx goes on counting. It happens if a
//! COMMIT fails because the disk is full, or if a statement says `OR ROLLBACK`.

use outbox::Outbox;
use outbox_tests::{CallLog, Fresh, event, eventually};
use sqlx::pool::PoolOptions;
use sqlx::{Pool, Sqlite};

use crate::harness::{HOUR, recording_listeners, with_status, write};

/// Starts an outbox on a pool with one connection.
async fn started(db: &Fresh<Sqlite>, received: &CallLog) -> (Pool<Sqlite>, Outbox<Sqlite>) {
    let options = (*db.pool.connect_options()).clone();
    let pool = PoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let builder = outbox::builder(pool.clone()).listeners(recording_listeners(received));
    (pool, builder.poll_interval(HOUR).start().await.unwrap())
}

/// Leaves the only connection of the pool with one transaction too many in the count of sqlx.
async fn miscount(pool: &Pool<Sqlite>) {
    let mut tx = pool.begin().await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.unwrap();
    drop(tx);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_connection_can_be_used_again() {
    let db = Fresh::<Sqlite>::new().await.unwrap();
    let received = CallLog::default();
    let (pool, outbox) = started(&db, &received).await;
    for _ in 0..3 {
        miscount(&pool).await;
        write(&outbox, &[event("A")]).await;
    }
    received.wait_for(3).await;
    outbox.shutdown().await.unwrap();
}

/// On such a connection BEGIN becomes a savepoint, whose rollback leaves a transaction open. What is committed in it
/// later is never durable, although sqlx says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_delivered_that_is_never_committed() {
    let db = Fresh::<Sqlite>::new().await.unwrap();
    let received = CallLog::default();
    let (pool, outbox) = started(&db, &received).await;
    miscount(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    outbox.write_in(&mut tx, event("A")).await.unwrap();
    tx.rollback().await.unwrap();

    let mut tx = pool.begin().await.unwrap();
    let receipt = outbox.write_in(&mut tx, event("A")).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    outbox.committed(receipt).await.unwrap();

    // It is delivered after anything that was queued before.
    write(&outbox, &[event("B")]).await;
    eventually("it is recorded", async || with_status(&db, 1).await == 1).await;
    received.assert_each_once(1);
    assert_eq!(received.types(), ["B"]);
    outbox.shutdown().await.unwrap();
}
