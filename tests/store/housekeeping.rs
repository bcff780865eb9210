//! Purging and replaying while other sessions write: they block no other session.
//!
//! The effect on write throughput is measured by `cargo xtask bench --housekeeping`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use outbox::admin::{PurgeScheduler, Table};
use outbox::config::PurgeConfig;
use outbox::dead::{DeadEvents, DeadFilter};
use outbox::tx::Writer;
use outbox_tests::{Fresh, TestDatabase, event, eventually, on_every_database};
use sqlx::{PgPool, Postgres, SqlSafeStr};

const WRITERS: usize = 8;

/// Returns the backend process of a pool's only connection.
async fn backend(pool: &PgPool) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_and_replay_block_no_session() {
    let Some(db) = Fresh::<Postgres>::new().await else { return };
    db.store().await;
    db.fill("A", 1, 1, 6_000).await;
    db.fill("A", 3, 10_001, 4_000).await;
    let (commits, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let writer = Writer::new(db.pool.clone(), Table::default());
            let (commits, stop) = (Arc::clone(&commits), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let mut tx = writer.begin().await.unwrap();
                    tx.write(event("A")).unwrap();
                    tx.commit().await.unwrap();
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();

    let (purger, replayer) = (db.single().await, db.single().await);
    let ours = [backend(&purger).await, backend(&replayer).await];
    let (samples, blocked) = (AtomicU64::new(0), AtomicU64::new(0));
    let watch = async {
        let waiting =
            "SELECT COUNT(*) FROM pg_stat_activity WHERE pg_blocking_pids(pid) && $1::int[]";
        loop {
            let count: i64 =
                sqlx::query_scalar(waiting).bind(ours).fetch_one(&db.pool).await.unwrap();
            samples.fetch_add(1, Ordering::Relaxed);
            blocked.fetch_add(count.unsigned_abs(), Ordering::Relaxed);
        }
    };
    let mut config = PurgeConfig::default();
    config.retention = Duration::from_secs(24 * 60 * 60);
    let purge = PurgeScheduler::new(purger, Table::default(), config).unwrap();
    let dead = DeadEvents::new(replayer, Table::default());
    let everything = DeadFilter::default();
    let work = async { tokio::join!(purge.run_once(), dead.replay_all(&everything, 500)) };
    let before = commits.load(Ordering::Relaxed);
    let (purged, replayed) = tokio::select! {
        done = work => done,
        () = watch => unreachable!("it samples until the work is done"),
    };
    let written = commits.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }

    assert_eq!((purged.unwrap().done, replayed.unwrap()), (6_000, 4_000));
    let samples = samples.into_inner();
    println!("{written} commits meanwhile, {samples} samples");
    assert!(written > 100 && samples > 20, "{written} commits, {samples} samples");
    assert_eq!(blocked.into_inner(), 0, "a session was blocked");
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns whether a DELETE is running on the server and waits for a lock.
pub(crate) async fn is_deleting<DB: TestDatabase>(db: &Fresh<DB>) -> bool {
    let statements = match DB::SHORT_NAME {
        "mysql" => {
            "SELECT COUNT(*) FROM information_schema.processlist \
             WHERE db = DATABASE() AND info LIKE 'DELETE entry%'"
        }
        _ => {
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND wait_event_type = 'Lock' AND query LIKE 'DELETE%'"
        }
    };
    db.number(statements).await > 0
}

/// Another session has locked a row that is to be deleted. The purge skips it, and no writer waits.
/// Not on SQLite, which has a single writer.
async fn a_purge_next_to_a_locked_row_blocks_no_writer<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        return;
    }
    let store = db.store().await;
    db.fill("A", 1, 1, 600).await;
    db.fill("A", 3, 1_001, 600).await;
    let writer = Writer::new(db.pool.clone(), Table::default());
    for (locked_id, by_age) in [("e300", false), ("e1100", true)] {
        let sequence = format!("SELECT sequence FROM outbox_event WHERE event_id = '{locked_id}'");
        let sequence = db.number(sequence).await;
        let mut holder = db.pool.begin().await.unwrap();
        // By primary key: otherwise MariaDB may read, and lock, the whole table.
        let lock =
            format!("SELECT event_id FROM outbox_event WHERE sequence = {sequence} FOR UPDATE");
        let sql = sqlx::AssertSqlSafe(lock).into_sql_str();
        DB::fetch(&mut holder, sql, vec![]).await.unwrap();
        let purge = tokio::spawn({
            let store = store.clone();
            async move {
                if by_age {
                    return store.purge_any(DAY, 0, 500).await.unwrap().deleted;
                }
                store.purge_done(DAY, None, 500).await.unwrap().deleted
            }
        });
        let is_running = async || purge.is_finished() || is_deleting(&db).await;
        eventually("the purge is running", is_running).await;
        for _ in 0..20 {
            let write = async {
                let mut tx = writer.begin().await.unwrap();
                tx.write(event("New")).unwrap();
                tx.commit().await.unwrap();
            };
            let written = tokio::time::timeout(Duration::from_secs(10), write).await;
            written.expect("no writer waits for the purge");
        }
        holder.rollback().await.unwrap();
        assert_eq!(purge.await.unwrap(), 499);
    }
}

on_every_database!(a_purge_next_to_a_locked_row_blocks_no_writer);
