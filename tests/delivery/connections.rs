//! The number of connections a relay opens, and the warning if the server permits fewer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::config::{Mode, PurgeConfig};
use outbox::listener::Delivery;
use outbox::{Config, Outbox};
use outbox_tests::{
    CallLog, Fresh, Log, TestDatabase, event, eventually, given_url, on_every_server,
};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};
use tokio::sync::{Mutex, Semaphore};

use crate::harness::{blocking_listener, insert_due, recording_listeners, with_status};

/// Counts the sessions of a database over a connection to another one.
struct Sessions<DB: TestDatabase> {
    outside: Mutex<DB::Connection>,
    sql: String,
}

impl<DB: TestDatabase> Sessions<DB> {
    async fn new(db: &Fresh<DB>) -> Self {
        let url = given_url::<DB>().expect("there is a server");
        let outside = DB::Connection::connect(&url).await.unwrap();
        let sql = match DB::SHORT_NAME {
            "postgres" => {
                "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = '{}' \
                AND backend_type = 'client backend'"
            }
            _ => "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}'",
        };
        Self { outside: Mutex::new(outside), sql: sql.replace("{}", db.name()) }
    }

    /// Returns the number of sessions that do not belong to the application's pool.
    async fn of_relay(&self, db: &Fresh<DB>) -> u32 {
        let sql = AssertSqlSafe(self.sql.clone()).into_sql_str();
        let rows = DB::fetch(&mut *self.outside.lock().await, sql, vec![]).await.unwrap();
        let all = DB::int(&rows[0], 0).unwrap().unwrap_or_default();
        u32::try_from(all).unwrap().saturating_sub(db.pool.size())
    }
}

/// Starts a relay in which every loop is busy. One event is recorded; the other stays in flight and needs lease
/// renewals until the semaphore has a permit.
async fn busy<DB: TestDatabase>(db: &Fresh<DB>, config: Config) -> (Outbox<DB>, Arc<Semaphore>) {
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let quick = |_: Delivery| async {};
    let registry = blocking_listener(&received, &semaphore).register_for("Order", "B", quick);
    let outbox = outbox::builder(db.pool.clone()).config(config).listeners(registry);
    let outbox = outbox.start().await.unwrap();
    insert_due(db, &outbox, &["A", "B"]).await;
    received.wait_for(1).await;
    eventually("the other event is recorded", async || with_status(db, 1).await == 1).await;
    (outbox, semaphore)
}

/// Lease renewal and purge often run at the same time, and the pool of a relay does not shrink for minutes.
fn config() -> Config {
    let mut config = Config::default();
    config.poll_interval = Duration::from_millis(10);
    config.lease = Duration::from_secs(3);
    config.purge = Some(PurgeConfig::new().interval(Duration::from_millis(1)));
    config
}

async fn count<DB: TestDatabase>(db: Fresh<DB>, config: Config) {
    let documented = config.relay_connections();
    // Renewal, purge and notifier rarely run at the same time: two of them are enough.
    let least = documented - u32::from(config.notify);
    let sessions = Sessions::new(&db).await;
    let (outbox, semaphore) = busy(&db, config).await;
    let reached = async || sessions.of_relay(&db).await >= least;
    eventually(&format!("it has {least} connections"), reached).await;
    let (begun, mut most) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(2) {
        most = most.max(sessions.of_relay(&db).await);
    }
    assert!(
        (least..=documented).contains(&most),
        "{most} were counted, {documented} are documented"
    );
    semaphore.add_permits(1);
    outbox.shutdown().await.unwrap();
    eventually("all are closed", async || sessions.of_relay(&db).await == 0).await;
}

async fn a_relay_opens_the_documented_number_of_connections<DB: TestDatabase>(db: Fresh<DB>) {
    count(db, config()).await;
}

async fn a_writer_only_node_opens_no_connections<DB: TestDatabase>(db: Fresh<DB>) {
    let mut config = Config::default();
    config.mode = Mode::WriterOnly;
    let sessions = Sessions::new(&db).await;
    let outbox = outbox::builder(db.pool.clone()).config(config.clone()).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    tx.write(event("A")).unwrap();
    tx.commit().await.unwrap();
    assert_eq!((sessions.of_relay(&db).await, config.relay_connections()), (0, 0));
    outbox.shutdown().await.unwrap();
}

/// Returns the warnings about connections at the start, for a pool of this size.
async fn warnings<DB: TestDatabase>(url: &str, connections: u32) -> Vec<String> {
    let (log, _log) = Log::capture();
    let pool = PoolOptions::<DB>::new().max_connections(connections);
    let pool = pool.connect(url).await.unwrap();
    let outbox = outbox::builder(pool).listeners(recording_listeners(&CallLog::default()));
    outbox.start().await.unwrap().shutdown().await.unwrap();
    log.with("this process may open")
}

async fn exceeding_the_servers_connection_limit_is_logged<DB: TestDatabase>(db: Fresh<DB>) {
    assert_eq!(warnings::<DB>(&db.url(), 10).await, Vec::<String>::new());
    let warned = warnings::<DB>(&db.url(), 100_000).await.join("");
    let figures = "100005 connections (100000 of the application's pool and 5 of the relay)";
    assert!(warned.contains(figures), "{warned}");
    assert!(warned.contains("give the pool fewer (`PoolOptions::max_connections`)"), "{warned}");
}

async fn exceeding_the_users_connection_limit_is_logged<DB: TestDatabase>(db: Fresh<DB>) {
    let user = format!("limited_{:x}", rand::random::<u32>());
    match DB::SHORT_NAME {
        "postgres" => {
            db.run(format!("CREATE ROLE {user} LOGIN CONNECTION LIMIT 12")).await;
            db.run(format!("GRANT ALL ON SCHEMA public TO {user}")).await;
        }
        _ => {
            db.run(format!("CREATE USER {user}@'%' WITH MAX_USER_CONNECTIONS 12")).await;
            db.run(format!("GRANT ALL ON {}.* TO {user}@'%'", db.name())).await;
        }
    }
    let url = db.url();
    let (server, place) = url.rsplit_once('@').unwrap();
    let url = format!("{}://{user}@{place}", server.split(':').next().unwrap());
    assert_eq!(warnings::<DB>(&url, 7).await, Vec::<String>::new());
    let warned = warnings::<DB>(&url, 8).await.join("");
    assert!(warned.contains("may open 13 connections"), "{warned}");
    assert!(warned.contains("the server permits 12, to all processes together"), "{warned}");
}

on_every_server!(
    a_relay_opens_the_documented_number_of_connections,
    a_writer_only_node_opens_no_connections,
    exceeding_the_servers_connection_limit_is_logged,
    exceeding_the_users_connection_limit_is_logged,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notifying_relay_opens_the_documented_number_of_connections() {
    let Some(db) = Fresh::<sqlx::Postgres>::new().await else { return };
    let mut config = config();
    config.notify = true;
    count(db, config).await;
}
