//! A row that another session has locked and forgotten.

use std::sync::Arc;

use outbox::Completion;
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_server};
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};
use tokio::sync::Semaphore;

use super::harness::{Counted, held, quiet, with_status, write};

/// Enough for several batches.
const EVENTS: i64 = 300;

/// The first event's row is locked while its listener runs; everything else is delivered and recorded,
/// and so is the first when the lock is gone.
async fn one_locked_row_stops_no_other<DB: TestDatabase>(db: Fresh<DB>) {
    for completion in [Completion::Keep, Completion::Delete] {
        let (received, gate, counted) =
            (CallLog::default(), Arc::new(Semaphore::new(0)), Counted::default());
        let outbox = quiet(&db, held(&received, &gate)).completion(completion);
        let outbox = outbox.metrics(counted.clone()).start().await.unwrap();
        write(&outbox, &[event("A")]).await;
        received.wait_for(1).await;

        let mut session = DB::Connection::connect_with(&db.pool.connect_options()).await.unwrap();
        DB::run(&mut session, "BEGIN".into_sql_str()).await.unwrap();
        let sequence = db.number("SELECT MIN(sequence) FROM outbox_event WHERE status = 0").await;
        let lock = format!("SELECT 1 FROM outbox_event WHERE sequence = {sequence} FOR UPDATE");
        DB::run(&mut session, AssertSqlSafe(lock).into_sql_str()).await.unwrap();
        gate.add_permits(Semaphore::MAX_PERMITS / 2);
        for _ in 1..EVENTS {
            write(&outbox, &[event("A")]).await;
        }
        eventually("all others are recorded", async || with_status(&db, 0).await == 1).await;
        assert_eq!(received.count() as i64, EVENTS);

        DB::run(&mut session, "ROLLBACK".into_sql_str()).await.unwrap();
        eventually("so is the locked one", async || with_status(&db, 0).await == 0).await;
        outbox.drained().await.unwrap();
        assert_eq!(counted.stale(), 0, "it was neither applied nor stale meanwhile");
        received.assert_each_once(EVENTS as usize);
        outbox.shutdown().await.unwrap();
        db.run("DELETE FROM outbox_event").await;
    }
}

on_every_server!(one_locked_row_stops_no_other);
