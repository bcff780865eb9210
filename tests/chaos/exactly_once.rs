//! Processes that are killed between the write and the commit of a listener.

use std::collections::HashSet;

use outbox::EventEnvelope;
use outbox_tests::{Fresh, Node, TestDatabase, TestTable, eventually, numbered, on_every_database};
use sqlx::ConnectOptions;

use crate::exclusive;

const KILLS: u64 = 50;
/// Number of events per kill: the one at which the process is killed, and others.
const EVENTS_PER_KILL: usize = 5;

async fn every_event_has_exactly_one_effect<DB: TestDatabase>(db: Fresh<DB>) {
    let _exclusive = exclusive().await;
    let store = db.store().await;
    db.run("CREATE TABLE effect (event_id VARCHAR(64) NOT NULL)").await;
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let start = |wait_at: u64| {
        let options = [("in_tx", 1), ("wait_at", wait_at), ("lease_ms", 1_000), ("poll_ms", 20)];
        let mut node = Node::start(env!("CARGO_BIN_EXE_node"), DB::SHORT_NAME, &url, &options);
        node.expect_line("ready");
        node.expect_line("written");
        node
    };
    let (mut started, mut waiting) = (Vec::new(), HashSet::new());
    for number in 1..=KILLS {
        let victim = numbered("A", number);
        let mut events: Vec<EventEnvelope> =
            (1..EVENTS_PER_KILL).map(|_| numbered("A", 0)).collect();
        events.insert(EVENTS_PER_KILL / 2, victim.clone());
        let mut node = start(number);
        (&db, &store).insert_due(&events).await;
        // The listener has written, and its transaction is open.
        node.expect_line(&format!("at {}", victim.event_id()));
        assert!(waiting.insert(victim.event_id()));
        started.extend(node.kill());
    }
    let events = KILLS * EVENTS_PER_KILL as u64;
    let last = start(KILLS + 1);
    eventually("all are done", async || {
        db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 1").await
            == i64::try_from(events).unwrap()
    })
    .await;
    started.extend(last.stop());
    let again = started.len() - started.iter().collect::<HashSet<_>>().len();
    println!("{}: {KILLS} kills, {events} events, {again} started again", DB::SHORT_NAME);
    assert!(again >= waiting.len(), "each victim was started again");
    let twice = "SELECT COUNT(*) FROM (SELECT event_id FROM effect GROUP BY event_id \
        HAVING COUNT(*) > 1) AS twice";
    assert_eq!(db.number(twice).await, 0, "effects that happened twice");
    assert_eq!(db.number("SELECT COUNT(*) FROM effect").await, i64::try_from(events).unwrap());
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event WHERE attempts > 0").await, 0);
    assert_eq!(db.number("SELECT COUNT(locked_by) FROM outbox_event").await, 0);
}

on_every_database!(every_event_has_exactly_one_effect);
