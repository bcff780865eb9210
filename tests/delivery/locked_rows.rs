//! A row that another session keeps locked.

use std::sync::Arc;
use std::time::Duration;

use outbox::config::Completion;
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_server};
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};
use tokio::sync::Semaphore;

use super::harness::{CountingMetrics, blocking_listener, manual_poll, with_status, write};

/// Enough for several batches.
const EVENTS: i64 = 300;

/// The row of the first event is locked while its listener runs; all other events are delivered and recorded,
/// and so is the first one once the lock is released.
async fn a_locked_row_does_not_block_other_settlements<DB: TestDatabase>(db: Fresh<DB>) {
    settle_beside_a_locked_row(&db, Duration::from_secs(30)).await;
}

/// A statement may take a third of a lease, which is less than the shortest wait for a lock on MySQL and MariaDB.
async fn a_locked_row_does_not_block_others_of_a_short_lease<DB: TestDatabase>(db: Fresh<DB>) {
    settle_beside_a_locked_row(&db, Duration::from_secs(3)).await;
}

async fn settle_beside_a_locked_row<DB: TestDatabase>(db: &Fresh<DB>, lease: Duration) {
    for completion in [Completion::Keep, Completion::Delete] {
        let (received, semaphore, counted) =
            (CallLog::default(), Arc::new(Semaphore::new(0)), CountingMetrics::default());
        let outbox =
            manual_poll(db, blocking_listener(&received, &semaphore)).completion(completion);
        let outbox = outbox.lease(lease).metrics(counted.clone()).start().await.unwrap();
        write(&outbox, &[event("A")]).await;
        received.wait_for(1).await;

        let mut session = DB::Connection::connect_with(&db.pool.connect_options()).await.unwrap();
        DB::run(&mut session, "BEGIN".into_sql_str()).await.unwrap();
        let sequence = db.number("SELECT MIN(sequence) FROM outbox_event WHERE status = 0").await;
        let lock = format!("SELECT 1 FROM outbox_event WHERE sequence = {sequence} FOR UPDATE");
        DB::run(&mut session, AssertSqlSafe(lock).into_sql_str()).await.unwrap();
        semaphore.add_permits(Semaphore::MAX_PERMITS / 2);
        for _ in 1..EVENTS {
            write(&outbox, &[event("A")]).await;
        }
        eventually("all others are recorded", async || with_status(db, 0).await == 1).await;
        assert_eq!(received.count() as i64, EVENTS);

        DB::run(&mut session, "ROLLBACK".into_sql_str()).await.unwrap();
        eventually("the locked row is recorded", async || with_status(db, 0).await == 0).await;
        outbox.drained().await.unwrap();
        assert_eq!(counted.stale(), 0, "a locked row is not stale");
        received.assert_each_once(EVENTS as usize);
        outbox.shutdown().await.unwrap();
        db.run("DELETE FROM outbox_event").await;
    }
}

on_every_server!(
    a_locked_row_does_not_block_other_settlements,
    a_locked_row_does_not_block_others_of_a_short_lease,
);
