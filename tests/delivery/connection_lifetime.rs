//! Connections that are not to become old: behind a proxy, or with credentials that change.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_server};
use sqlx::Pool;
use sqlx::pool::PoolOptions;

use super::credentials::{forget, user};
use super::harness::{HOUR, listening, write};

/// A pool of a user of its own, by whom its sessions are known.
async fn pool<DB: TestDatabase>(db: &Fresh<DB>, name: &str, options: PoolOptions<DB>) -> Pool<DB> {
    let url = user(db, &db.url(), name).await;
    options.connect_with(DB::named(&url, db.name())).await.unwrap()
}

/// The sessions of a user, as the server knows them.
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
    format!("brief_{}", rand::random::<u32>())
}

const LIFETIME: Duration = Duration::from_secs(1);

/// A pool closes what is in use when it is given back, and looks at the rest once in a lifetime.
const SLACK: Duration = Duration::from_secs(4);

async fn no_session_of_the_relay_outlives_the_pools<DB: TestDatabase>(db: Fresh<DB>) {
    let name = name();
    let options = PoolOptions::new().max_lifetime(LIFETIME).idle_timeout(None);
    let pool = pool(&db, &name, options).await;
    let received = CallLog::default();
    for interval in [Duration::from_millis(20), HOUR] {
        let builder = outbox::builder(pool.clone()).listeners(listening(&received));
        // The connection that listens is one of them.
        let builder = builder.notify(DB::SHORT_NAME == "postgres");
        let outbox = builder.poll_interval(interval).start().await.unwrap();
        write(&outbox, &[event("A")]).await;
        received.wait_for(1).await;
        let (first, begun) = (sessions(&db, &name).await, Instant::now());
        assert!(first.len() >= 2, "{first:?}");
        // Something is always going on in one of them; in the other every loop waits.
        eventually("they are others", async || {
            if interval < HOUR {
                write(&outbox, &[event("A")]).await;
            }
            sessions(&db, &name).await.is_disjoint(&first)
        })
        .await;
        println!("{}: {} sessions in {:?}", DB::SHORT_NAME, first.len(), begun.elapsed());
        assert!(begun.elapsed() < LIFETIME + SLACK, "{:?}", begun.elapsed());
        outbox.shutdown().await.unwrap();
    }
    pool.close().await;
    forget(&db, &name).await;
}

async fn an_idle_relay_gives_its_connections_up<DB: TestDatabase>(db: Fresh<DB>) {
    let name = name();
    let options = PoolOptions::new().max_lifetime(None).idle_timeout(LIFETIME);
    let pool = pool(&db, &name, options).await;
    let received = CallLog::default();
    let builder = outbox::builder(pool.clone()).listeners(listening(&received));
    let outbox = builder.poll_interval(HOUR).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    assert!(sessions(&db, &name).await.len() >= 2);
    eventually("there is none", async || sessions(&db, &name).await.is_empty()).await;
    write(&outbox, &[event("A")]).await;
    received.wait_for(2).await;
    outbox.shutdown().await.unwrap();
    pool.close().await;
    forget(&db, &name).await;
}

on_every_server!(
    no_session_of_the_relay_outlives_the_pools,
    an_idle_relay_gives_its_connections_up,
);
