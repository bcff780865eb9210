//! One relay of an ordered outbox, for tests with several processes: records when each call of its listener begins and
//! ends, by the clock of the database.
//!
//! `ordered DATABASE URL LOG [option=value]..`. It prints `ready`, and shuts down gracefully at the end of its input.
//! Each line of the log is `begin|done|failed AGGREGATE NUMBER MICROSECONDS`.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test program fails by panicking"
)]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use outbox::config::Ordering;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_tests::TestDatabase;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection, MySql, Pool, Postgres, SqlSafeStr, Sqlite};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, url, log, options @ ..] = arguments.as_slice() else {
        panic!("ordered DATABASE URL LOG [option=value]..");
    };
    let options: HashMap<&str, u64> = options
        .iter()
        .map(|option| option.split_once('=').expect("option=value"))
        .map(|(name, value)| (name, value.parse().expect("a number")))
        .collect();
    let log = OpenOptions::new().append(true).create(true).open(log).expect("the log file");
    match database.as_str() {
        "postgres" => run::<Postgres>(url, log, &options).await,
        "mysql" => run::<MySql>(url, log, &options).await,
        "sqlite" => run::<Sqlite>(url, log, &options).await,
        other => panic!("unknown database {other}"),
    }
}

async fn run<DB: TestDatabase>(url: &str, log: File, options: &HashMap<&str, u64>) {
    let option = |name: &str, default: u64| options.get(name).copied().unwrap_or(default);
    let connect: <DB::Connection as Connection>::Options = url.parse().expect("a URL");
    let pool = PoolOptions::<DB>::new().max_connections(10).connect_with(connect).await;
    let pool = pool.expect("the database answers");
    let (calls, log, failing) = (pool.clone(), Arc::new(log), option("failing", 0));
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        let (pool, log) = (calls.clone(), Arc::clone(&log));
        async move {
            let event = delivery.envelope();
            let aggregate = event.aggregate_id().unwrap_or_default();
            let number = event.payload().as_str();
            let record = async |what: &str| {
                let line = format!("{what} {aggregate} {number} {}\n", now(&pool).await);
                // One write per line, so that a line is written completely or not at all.
                (&*log).write_all(line.as_bytes()).expect("the log can be written");
            };
            record("begin").await;
            // Two calls at the same time would hardly be seen if they took no time.
            let work = Duration::from_micros(rand::random_range(0..5_000));
            let _ = tokio::time::timeout(work, std::future::pending::<()>()).await;
            let fails = rand::random_range(0..1_000) < failing;
            record(if fails { "failed" } else { "done" }).await;
            if fails { Err("this attempt fails") } else { Ok(()) }
        }
    });
    let millis = |name, default| Duration::from_millis(option(name, default));
    let outbox = outbox::builder(pool)
        .order(Ordering::PerAggregate)
        .listeners(registry)
        .poll_interval(millis("poll_ms", 50))
        .lease(millis("lease_ms", 30_000))
        .retry_base(Duration::from_millis(2))
        .retry_max(Duration::from_millis(50))
        .max_attempts(1_000_000)
        .start()
        .await
        .expect("it starts");
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = input.next_line().await {}
    outbox.shutdown().await.expect("a graceful shutdown");
}

/// Returns the time of the database's clock, in microseconds.
async fn now<DB: TestDatabase>(pool: &Pool<DB>) -> i64 {
    let mut connection = pool.acquire().await.expect("a connection");
    let sql = AssertSqlSafe(format!("SELECT {}", DB::NOW_MICROS)).into_sql_str();
    let rows = DB::fetch(&mut connection, sql, vec![]).await.expect("the time");
    DB::int(&rows[0], 0).expect("a number").expect("a time")
}
