//! Purging and replaying while others write: nobody waits for them.
//!
//! What it costs the writers is measured by `cargo xtask bench --housekeeping`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use outbox::{DeadEvents, DeadFilter, PurgeConfig, PurgeScheduler, Table, Writer};
use outbox_tests::{Fresh, TestDatabase, event, eventually, on_every_database};
use sqlx::{PgPool, Postgres, SqlSafeStr};

const WRITERS: usize = 8;

/// The process at the other end of a pool's only connection.
async fn backend(pool: &PgPool) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_it() {
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
    let (looks, blocked) = (AtomicU64::new(0), AtomicU64::new(0));
    let watch = async {
        let waiting =
            "SELECT COUNT(*) FROM pg_stat_activity WHERE pg_blocking_pids(pid) && $1::int[]";
        loop {
            let count: i64 =
                sqlx::query_scalar(waiting).bind(ours).fetch_one(&db.pool).await.unwrap();
            looks.fetch_add(1, Ordering::Relaxed);
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
        () = watch => unreachable!("it looks on until the work is done"),
    };
    let written = commits.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }

    assert_eq!((purged.unwrap().done, replayed.unwrap()), (6_000, 4_000));
    let looks = looks.into_inner();
    println!("{written} commits meanwhile, looked {looks} times");
    assert!(written > 100 && looks > 20, "{written} commits, looked {looks} times");
    assert_eq!(blocked.into_inner(), 0, "somebody waited");
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether a server is busy with a DELETE that others keep from its end.
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

/// Another session has locked a row that is to be deleted. The purge passes over it, and no writer waits.
/// SQLite has one writer.
async fn whoever_writes_does_not_wait<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        return;
    }
    let store = db.store().await;
    db.fill("A", 1, 1, 600).await;
    db.fill("A", 3, 1_001, 600).await;
    let writer = Writer::new(db.pool.clone(), Table::default());
    let lock =
        |id: &str| format!("SELECT event_id FROM outbox_event WHERE event_id = '{id}' FOR UPDATE");
    for (held, by_age) in [("e300", false), ("e1100", true)] {
        let mut holder = db.pool.begin().await.unwrap();
        let sql = sqlx::AssertSqlSafe(lock(held)).into_sql_str();
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
        let is_at_work = async || purge.is_finished() || is_deleting(&db).await;
        eventually("the purge is at work", is_at_work).await;
        for _ in 0..20 {
            let write = async {
                let mut tx = writer.begin().await.unwrap();
                tx.write(event("New")).unwrap();
                tx.commit().await.unwrap();
            };
            let written = tokio::time::timeout(Duration::from_secs(10), write).await;
            written.expect("nobody waits for the purge");
        }
        holder.rollback().await.unwrap();
        assert_eq!(purge.await.unwrap(), 499);
    }
}

on_every_database!(whoever_writes_does_not_wait);
