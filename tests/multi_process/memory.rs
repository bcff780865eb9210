//! The memory use of a node with a large backlog.

use outbox_tests::{Fresh, Node, TestDatabase, eventually, on_every_database};
use sqlx::ConnectOptions;

const EVENTS: u64 = 200_000;

async fn a_stuck_listener_does_not_fill_the_memory<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    db.fill("A", 0, 1, EVENTS).await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let mut node = Node::start(env!("CARGO_BIN_EXE_node"), DB::SHORT_NAME, &url, &[("stuck", 1)]);
    node.expect_line("ready");
    node.expect_line("written");
    // The workers are busy, and there is no capacity for another batch.
    let locked = "SELECT COUNT(locked_by) FROM outbox_event";
    eventually("the queues are full", async || db.number(locked).await >= 800).await;
    let in_flight = db.number(locked).await;
    println!("{}: {in_flight} of {EVENTS} in flight, {} MiB", DB::SHORT_NAME, node.memory());
    assert!(in_flight <= 1_032, "{in_flight}");
    assert!(node.memory() < 150, "{} MiB", node.memory());
    node.stop();
    assert_eq!(db.number(locked).await, 0, "all are released");
}

on_every_database!(a_stuck_listener_does_not_fill_the_memory);

/// Only on PostgreSQL, which compresses the payloads: other databases would write two gigabytes.
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
    node.expect_line("ready");
    node.expect_line("written");
    let done = "SELECT COUNT(*) FROM outbox_event WHERE status = 1";
    eventually("all are delivered", async || db.number(done).await == 2_000).await;
    println!("2,000 events of 1 MiB: {} MiB", node.memory());
    assert!(node.memory() < 500, "{} MiB", node.memory());
    assert_eq!(node.stop().len(), 2_000);
}
