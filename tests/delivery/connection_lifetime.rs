//! Connections with a limited lifetime, as behind a proxy or with changing credentials.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_server};
use sqlx::Pool;
use sqlx::pool::PoolOptions;

use super::credentials::{create_user, drop_user};
use super::harness::{HOUR, recording_listeners, write};

/// Returns a pool with its own user, which identifies its sessions.
async fn pool<DB: TestDatabase>(db: &Fresh<DB>, name: &str, options: PoolOptions<DB>) -> Pool<DB> {
    let url = create_user(db, &db.url(), name).await;
    options.connect_with(DB::named(&url, db.name())).await.unwrap()
}

/// Returns the session ids of a user.
async fn sessions<DB: TestDatabase>(db: &Fresh<DB>, name: &str) -> HashSet<String> {
    let sql = match DB::SHORT_NAME {
        "postgres" => format!("SELECT pid::text FROM pg_stat_activity WHERE usename = '{name}'"),
        _ => format!(
            "SELECT CAST(id AS CHAR(20)) FROM information_schema.processlist WHERE user = '{name}'"
        ),
    };
    let rows: Vec<[String; 1]> = db.texts(sql).await;
    rows.into_iter().flatten().collect()
}

fn name() -> String {
    format!("lifetime_{}", rand::random::<u32>())
}

const LIFETIME: Duration = Duration::from_secs(1);

/// A pool closes connections in use when they are returned, and checks the others once per lifetime.
const TOLERANCE: Duration = Duration::from_secs(4);

async fn relay_sessions_respect_the_pools_max_lifetime<DB: TestDatabase>(db: Fresh<DB>) {
    let name = name();
    let options = PoolOptions::new().max_lifetime(LIFETIME).idle_timeout(None);
    let pool = pool(&db, &name, options).await;
    let received = CallLog::default();
    for interval in [Duration::from_millis(20), HOUR] {
        let builder = outbox::builder(pool.clone()).listeners(recording_listeners(&received));
        // The LISTEN connection is one of them.
        let builder = if DB::SHORT_NAME == "postgres" { builder.notify() } else { builder };
        let outbox = builder.poll_interval(interval).start().await.unwrap();
        write(&outbox, &[event("A")]).await;
        received.wait_for(1).await;
        let (first, begun) = (sessions(&db, &name).await, Instant::now());
        assert!(first.len() >= 2, "{first:?}");
        // With the short interval every loop is busy; with the long one every loop waits.
        eventually("all sessions are replaced", async || {
            if interval < HOUR {
                write(&outbox, &[event("A")]).await;
            }
            sessions(&db, &name).await.is_disjoint(&first)
        })
        .await;
        println!("{}: {} sessions in {:?}", DB::SHORT_NAME, first.len(), begun.elapsed());
        assert!(begun.elapsed() < LIFETIME + TOLERANCE, "{:?}", begun.elapsed());
        outbox.shutdown().await.unwrap();
    }
    pool.close().await;
    drop_user(&db, &name).await;
}

async fn an_idle_relay_closes_its_connections<DB: TestDatabase>(db: Fresh<DB>) {
    let name = name();
    let options = PoolOptions::new().max_lifetime(None).idle_timeout(LIFETIME);
    let pool = pool(&db, &name, options).await;
    let received = CallLog::default();
    let builder = outbox::builder(pool.clone()).listeners(recording_listeners(&received));
    let outbox = builder.poll_interval(HOUR).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    assert!(sessions(&db, &name).await.len() >= 2);
    eventually("all sessions are closed", async || sessions(&db, &name).await.is_empty()).await;
    write(&outbox, &[event("A")]).await;
    received.wait_for(2).await;
    outbox.shutdown().await.unwrap();
    pool.close().await;
    drop_user(&db, &name).await;
}

on_every_server!(
    relay_sessions_respect_the_pools_max_lifetime,
    an_idle_relay_closes_its_connections,
);
