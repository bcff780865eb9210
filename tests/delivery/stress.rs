//! Repeated starts and shutdowns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::config::Mode;
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_database};
use tokio::runtime::Handle;

use crate::harness::{locked_rows, manual_poll, recording_listeners, with_status, write};

/// Returns the number of sessions in this database.
async fn sessions<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    match DB::SHORT_NAME {
        "postgres" => {
            db.number("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()")
                .await
        }
        "mysql" => {
            db.number("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()")
                .await
        }
        _ => 0,
    }
}

async fn two_hundred_starts_and_stops_leak_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let writer = outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).start().await.unwrap();
    let running = Arc::new(AtomicUsize::new(1));
    let keep_writing = Arc::clone(&running);
    let loaded = tokio::spawn(async move {
        let mut written = 0;
        while keep_writing.load(Ordering::SeqCst) == 1 {
            write(&writer, &[event("A"), event("B")]).await;
            written += 2;
        }
        written
    });
    let mut tasks = Vec::new();
    for _ in 0..200 {
        let outbox =
            manual_poll(&db, recording_listeners(&received)).workers(4).start().await.unwrap();
        write(&outbox, &[event("C")]).await;
        outbox.shutdown().await.unwrap();
        drop(outbox);
        tasks.push(Handle::current().metrics().num_alive_tasks());
    }
    running.store(0, Ordering::SeqCst);
    let written: usize = loaded.await.unwrap();
    // The number of tasks does not grow from the early to the late shutdowns.
    let (early, late) = (&tasks[20..60], &tasks[160..]);
    let least = |counts: &[usize]| counts.iter().min().copied().unwrap();
    println!(
        "{}: tasks {} and {}, {} events",
        DB::SHORT_NAME,
        least(early),
        least(late),
        written + 200
    );
    assert!(least(late) <= least(early) + 2, "{tasks:?}");
    eventually("connections are closed", async || sessions(&db).await <= 13).await;
    assert_eq!(locked_rows(&db).await, 0, "every shutdown released its rows");
    let last = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    last.drained().await.unwrap();
    received.assert_each_once(written + 200);
    assert_eq!(usize::try_from(with_status(&db, 1).await).unwrap(), written + 200);
}

on_every_database!(two_hundred_starts_and_stops_leak_nothing);
