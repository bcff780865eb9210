//! Waiting to begin a transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outbox_runtime::Error;
use outbox_runtime::store::Table;
use outbox_runtime::write::Writer;
use outbox_tests::{Fresh, TestDatabase, event, on_every_database, poll_times};
use sqlx::pool::PoolOptions;

/// Callers that gave up while they waited for a connection.
const GIVEN_UP: u64 = 500;

/// A writer on a pool of its own, and how often a connection of it has been taken.
async fn counting<DB: TestDatabase>(
    db: &Fresh<DB>,
    acquire_timeout: Duration,
) -> (Writer<DB>, Arc<AtomicU64>) {
    db.store().await;
    let taken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&taken);
    let pool = PoolOptions::<DB>::new()
        .max_connections(1)
        .acquire_timeout(acquire_timeout)
        .before_acquire(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(true) })
        })
        .connect_with((*db.pool.connect_options()).clone())
        .await
        .unwrap();
    (Writer::new(pool, Table::default()), taken)
}

async fn a_begin_that_was_given_up_is_out_of_the_queue<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, taken) = counting(&db, Duration::from_secs(30)).await;
    let open = writer.begin().await.unwrap();
    for _ in 0..GIVEN_UP {
        assert!(poll_times(writer.begin(), 1).await.is_none(), "the connection is taken");
    }
    let before = taken.load(Ordering::Relaxed);
    open.rollback().await.unwrap();
    let begun = Instant::now();
    let next = writer.begin().await.unwrap();
    let waited = begun.elapsed();
    let served = taken.load(Ordering::Relaxed) - before;
    println!("{}: the next began after {waited:?}, as number {served}", DB::SHORT_NAME);
    assert_eq!(served, 1, "no other caller is served before it");
    next.rollback().await.unwrap();
}

async fn a_second_transaction_of_one_task_is_refused_in_time<DB: TestDatabase>(db: Fresh<DB>) {
    const LIMIT: Duration = Duration::from_millis(300);
    let (writer, _) = counting(&db, LIMIT).await;
    let mut first = writer.begin().await.unwrap();
    let begun = Instant::now();
    let second = tokio::time::timeout(Duration::from_secs(10), writer.begin()).await;
    let error = second.expect("it does not wait longer than for a connection").unwrap_err();
    println!("{}: refused after {:?}: {error}", DB::SHORT_NAME, begun.elapsed());
    assert!(begun.elapsed() >= LIMIT);
    if DB::URL_VARIABLE.is_none() {
        let Error::WriterLockTimeout { after } = error else { panic!("{error:?}") };
        assert_eq!(after, LIMIT);
        assert!(error.to_string().contains("`&mut Tx`"), "it names the remedy: {error}");
    } else {
        let timed_out = matches!(error, Error::Database { source: sqlx::Error::PoolTimedOut, .. });
        assert!(timed_out, "{error:?}");
    }
    // The first is as good as before, and so is the next.
    first.write(event("A")).unwrap();
    first.commit().await.unwrap();
    writer.begin().await.unwrap().rollback().await.unwrap();
}

on_every_database!(
    a_begin_that_was_given_up_is_out_of_the_queue,
    a_second_transaction_of_one_task_is_refused_in_time,
);
