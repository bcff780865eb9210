//! A disk that is full.

use std::collections::HashMap;
use std::time::Duration;

use outbox_tests::eventually;
use sqlx::Sqlite;
use tokio::time::Instant;

use crate::invariants::Verdict;
use crate::process::Role;
use crate::testbed::{Arena, Habits};

/// Less than the database, and more than a process's ledger.
const FULL: u64 = 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_written_is_delivered_when_it_can() {
    let _alone = crate::alone().await;
    let lease = Duration::from_secs(30);
    let habits = Habits { lease, pace: Duration::from_millis(10), failing: 0, seed: 1 };
    let mut arena = Arena::<Sqlite>::open(habits).await.expect("SQLite");
    let writer = Role { writers: 2, seats: 8, exhausts: false, own_clock: false };
    let children = vec![arena.start(writer), arena.start(Role { writers: 0, ..writer })];
    let changes = async || {
        let business = arena.count("business").await;
        (business, arena.count("outbox_event WHERE status = 1").await)
    };
    eventually("they work", async || changes().await.1 > 1_000).await;
    children.iter().for_each(|child| child.limit_files(Some(FULL)));
    // Nothing is written any more, and that for a second.
    let mut last = (Instant::now(), changes().await);
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    while last.0.elapsed() < Duration::from_secs(1) {
        ticks.tick().await;
        let now = changes().await;
        if now != last.1 {
            last = (Instant::now(), now);
        }
    }
    let (business, done) = last.1;
    children.iter().for_each(|child| child.limit_files(None));
    eventually("they write again", async || changes().await.0 > business + 500).await;
    eventually("they deliver again", async || changes().await.1 > done + 500).await;
    let complaints: String = children.iter().map(|child| child.complaints()).collect();
    arena.settle(children).await;
    let verdict = Verdict::of(&arena, &HashMap::new()).await;
    println!("{business} events before the disk was full, {} in the end", verdict.events);
    verdict.assert_right(&[]);
    assert!(complaints.contains("ERROR"), "somebody has noticed: {complaints}");
}
