//! An event that crashes every process that handles it.

use std::time::Duration;

use outbox::EventEnvelope;
use outbox::event::Status;
use outbox_tests::{Fresh, Node, TestDatabase, TestTable, eventually, numbered, on_every_database};
use sqlx::ConnectOptions;

use crate::exclusive;

const POISON: u64 = 1;

async fn a_poison_event_becomes_dead_after_five_takeovers<DB: TestDatabase>(db: Fresh<DB>) {
    let _exclusive = exclusive().await;
    let store = db.store().await;
    let poison = numbered("A", POISON);
    let mut events: Vec<EventEnvelope> = (0..200).map(|_| numbered("A", 0)).collect();
    events.insert(20, poison.clone());
    let rows = (&db, &store).insert_due(&events).await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let start = || {
        // Few workers: many other events are queued with it.
        let options = [("abort_at", POISON), ("lease_ms", 1_000), ("poll_ms", 20), ("workers", 4)];
        let mut node = Node::start(env!("CARGO_BIN_EXE_node"), DB::SHORT_NAME, &url, &options);
        node.expect_line("ready");
        node.expect_line("written");
        node
    };
    let poison_id = poison.event_id().to_string();
    let began = |log: &[String]| log.iter().filter(|id| **id == poison_id).count();
    let mut lost = 0;
    let mut node = start();
    let dead = "SELECT COUNT(*) FROM outbox_event WHERE status = 3";
    while db.number(dead).await == 0 {
        let crash = node.crashed();
        assert_eq!(began(&crash), 1, "it crashed the process");
        lost += 1;
        assert!(lost <= 5, "it should be dead by now");
        let queued = db.number("SELECT COUNT(locked_by) FROM outbox_event").await;
        println!("{}: owner {lost} lost with {queued} in flight", DB::SHORT_NAME);
        node = start();
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while node.is_alive() && db.number(dead).await == 0 {
            ticks.tick().await;
        }
    }
    eventually("the others are done", async || {
        db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 1").await == 200
    })
    .await;
    node.stop();
    assert_eq!(lost, 5);
    let row = (&db, &store).row(rows[20].sequence).await;
    assert_eq!((row.status, row.attempts), (Status::Dead, 0));
    assert_eq!(row.last_error.as_deref(), Some("owner lost 5 times"));
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event WHERE attempts > 0").await, 0);
}

on_every_database!(a_poison_event_becomes_dead_after_five_takeovers);
