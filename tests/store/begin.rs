//! Waiting to begin a transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outbox_runtime::Error;
use outbox_runtime::store::Table;
use outbox_runtime::write::Writer;
use outbox_tests::{Fresh, TestDatabase, event, on_every_database, poll_times};
use sqlx::pool::PoolOptions;

/// Number of callers that are cancelled while they wait for a connection.
const CANCELLED: u64 = 500;

/// Returns a writer with its own pool of one connection, and a counter of acquired connections.
async fn counting_writer<DB: TestDatabase>(
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

async fn a_cancelled_begin_leaves_the_connection_queue<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, taken) = counting_writer(&db, Duration::from_secs(30)).await;
    let open = writer.begin().await.unwrap();
    for _ in 0..CANCELLED {
        assert!(poll_times(writer.begin(), 1).await.is_none(), "the connection is in use");
    }
    let before = taken.load(Ordering::Relaxed);
    open.rollback().await.unwrap();
    let begun = Instant::now();
    let next = writer.begin().await.unwrap();
    let waited = begun.elapsed();
    let served = taken.load(Ordering::Relaxed) - before;
    println!("{}: the next transaction began after {waited:?}, as number {served}", DB::SHORT_NAME);
    assert_eq!(served, 1, "no cancelled caller is served before it");
    next.rollback().await.unwrap();
}

async fn a_nested_begin_in_one_task_times_out<DB: TestDatabase>(db: Fresh<DB>) {
    const LIMIT: Duration = Duration::from_millis(300);
    let (writer, _) = counting_writer(&db, LIMIT).await;
    let mut first = writer.begin().await.unwrap();
    let begun = Instant::now();
    let second = tokio::time::timeout(Duration::from_secs(10), writer.begin()).await;
    let error = second.expect("the wait is bounded by the acquire timeout").unwrap_err();
    println!("{}: refused after {:?}: {error}", DB::SHORT_NAME, begun.elapsed());
    assert!(begun.elapsed() >= LIMIT);
    if DB::URL_VARIABLE.is_none() {
        let Error::WriterLockTimeout { after } = error else { panic!("{error:?}") };
        assert_eq!(after, LIMIT);
        assert!(error.to_string().contains("`&mut Tx`"), "the error names the remedy: {error}");
    } else {
        let timed_out = matches!(error, Error::Database { source: sqlx::Error::PoolTimedOut, .. });
        assert!(timed_out, "{error:?}");
    }
    // The first transaction still works, and so does the next one.
    first.write(event("A")).unwrap();
    first.commit().await.unwrap();
    writer.begin().await.unwrap().rollback().await.unwrap();
}

on_every_database!(
    a_cancelled_begin_leaves_the_connection_queue,
    a_nested_begin_in_one_task_times_out,
);
