//! What a process holds in memory, whatever waits in the table.

use outbox_tests::{Fresh, Node, TestDatabase, eventually, on_every_database};
use sqlx::ConnectOptions;

const EVENTS: u64 = 200_000;

async fn a_stuck_listener_does_not_fill_the_memory<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    db.fill("A", 0, 1, EVENTS).await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let mut node = Node::start(env!("CARGO_BIN_EXE_node"), DB::SHORT_NAME, &url, &[("stuck", 1)]);
    node.says("ready");
    node.says("written");
    // The workers are busy, and there is no room for another batch.
    let locked = "SELECT COUNT(locked_by) FROM outbox_event";
    eventually("it has what it can hold", async || db.number(locked).await >= 800).await;
    let held = db.number(locked).await;
    println!("{}: {held} of {EVENTS} in hand, {} MiB", DB::SHORT_NAME, node.memory());
    assert!(held <= 1_032, "{held}");
    assert!(node.memory() < 150, "{} MiB", node.memory());
    node.stop();
    assert_eq!(db.number(locked).await, 0, "all are given back");
}

on_every_database!(a_stuck_listener_does_not_fill_the_memory);

/// On PostgreSQL alone, which compresses them: elsewhere this would write two gigabytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_events_do_not_fill_the_memory() {
    let Some(db) = Fresh::<sqlx::Postgres>::new().await else { return };
    db.store().await;
    db.run(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, available_at, \
            created_at) SELECT 'e' || i, 'A', 'Order', \
            ('\"' || repeat('x', 1048574) || '\"')::json, now(), now() \
         FROM generate_series(1, 2000) AS i",
    )
    .await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let mut node = Node::start(env!("CARGO_BIN_EXE_node"), "postgres", &url, &[]);
    node.says("ready");
    node.says("written");
    let done = "SELECT COUNT(*) FROM outbox_event WHERE status = 1";
    eventually("all are delivered", async || db.number(done).await == 2_000).await;
    println!("2,000 events of 1 MiB: {} MiB", node.memory());
    assert!(node.memory() < 500, "{} MiB", node.memory());
    assert_eq!(node.stop().len(), 2_000);
}
