//! Tests of the example, with the orders on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;

use outbox::event::EventId;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqlitePoolOptions;

use super::*;

async fn in_memory() -> SqlitePool {
    SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap()
}

async fn delivered(stock: &SqlitePool) -> (i64, i64, i64) {
    let query = "SELECT (SELECT quantity FROM stock), (SELECT SUM(taken) FROM handled_event), \
                 (SELECT COUNT(*) FROM outbox_event WHERE status = 1)";
    sqlx::query_as(query).fetch_one(stock).await.unwrap()
}

#[tokio::test]
async fn an_order_on_sqlite_takes_goods_from_the_inventory() {
    let stock = in_memory().await;
    run(in_memory().await, &stock).await.unwrap();
    assert_eq!(delivered(&stock).await, (0, 7, 1));
}

#[tokio::test]
async fn an_order_on_postgres_takes_goods_from_the_inventory() {
    let variable = "OUTBOX_TEST_POSTGRES_URL";
    let Ok(server) = std::env::var(variable) else {
        let text = format!("skipped: {variable} is not set; `cargo xtask test` starts a server\n");
        std::io::stderr().write_all(text.as_bytes()).unwrap();
        return;
    };
    // A database of its own.
    let name = format!("outbox_example_{}", std::process::id());
    let admin = PgPool::connect(&server).await.unwrap();
    let create = format!("CREATE DATABASE {name}");
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&admin).await.unwrap();
    let (address, _) = server.rsplit_once('/').unwrap();
    let orders = PgPool::connect(&format!("{address}/{name}")).await.unwrap();
    let stock = in_memory().await;
    run(orders, &stock).await.unwrap();
    assert_eq!(delivered(&stock).await, (0, 7, 1));
    let drop = format!("DROP DATABASE {name}");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(&admin).await.unwrap();
}

/// The process crashes after the inventory is committed and before the event is settled: it is delivered again.
#[tokio::test]
async fn a_second_delivery_takes_nothing() {
    let stock = in_memory().await;
    inventory::set_up(&stock).await.unwrap();
    let outbox = outbox::builder(&stock).name("inventory").start().await.unwrap();
    let inventory = Inventory::default();
    inventory.connect(&outbox);
    let event_id = EventId::generate();
    for _ in 0..2 {
        assert_eq!(inventory.take(event_id, "chair", 3).await.unwrap(), 3);
    }
    assert_eq!(inventory::left(&stock, "chair").await.unwrap(), 4);
    outbox.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_program_runs() {
    start(None).await.unwrap();
}
