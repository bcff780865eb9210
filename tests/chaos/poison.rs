//! An event that is the end of every process that begins it.

use std::time::Duration;

use outbox::{EventEnvelope, Status};
use outbox_tests::{Fresh, Node, TestDatabase, TestTable, eventually, numbered, on_every_database};
use sqlx::ConnectOptions;

use crate::alone;

const POISON: u64 = 1;

async fn it_goes_dead_after_five_take_overs_and_alone<DB: TestDatabase>(db: Fresh<DB>) {
    let _alone = alone().await;
    let store = db.store().await;
    let poison = numbered("A", POISON);
    let mut events: Vec<EventEnvelope> = (0..200).map(|_| numbered("A", 0)).collect();
    events.insert(20, poison.clone());
    let rows = (&db, &store).insert_due(&events).await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let start = || {
        // Few workers and a short batch: many are queued beside it.
        let options = [("abort_at", POISON), ("lease_ms", 1_000), ("poll_ms", 20), ("workers", 4)];
        let mut node = Node::start(env!("CARGO_BIN_EXE_node"), DB::SHORT_NAME, &url, &options);
        node.says("ready");
        node.says("written");
        node
    };
    let poison_id = poison.event_id().to_string();
    let began = |log: &[String]| log.iter().filter(|id| **id == poison_id).count();
    let mut lost = 0;
    let mut node = start();
    let dead = "SELECT COUNT(*) FROM outbox_event WHERE status = 3";
    while db.number(dead).await == 0 {
        let crash = node.crashed();
        assert_eq!(began(&crash), 1, "it is what ended the process");
        lost += 1;
        assert!(lost <= 5, "it should have been dead by now");
        let queued = db.number("SELECT COUNT(locked_by) FROM outbox_event").await;
        println!("{}: owner {lost} lost with {queued} in hand", DB::SHORT_NAME);
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

on_every_database!(it_goes_dead_after_five_take_overs_and_alone);
