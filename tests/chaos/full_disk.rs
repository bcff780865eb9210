//! A full disk.

use std::collections::HashMap;
use std::time::Duration;

use outbox::tx::Writer;
use outbox_runtime::store::Table;
use outbox_tests::{PLAIN, event, eventually};
use sqlx::Sqlite;
use tokio::time::Instant;

use crate::invariants::Invariants;
use crate::process::Role;
use crate::testbed::{Testbed, Workload};

/// The file size limit: less than the database, and more than the ledger of a process.
const FILE_LIMIT: u64 = 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_delivered_after_a_full_disk_is_freed() {
    let _exclusive = crate::exclusive().await;
    let lease = Duration::from_secs(30);
    let workload =
        Workload { lease, write_interval: Duration::from_millis(10), failing: 0, seed: 1 };
    let mut testbed = Testbed::<Sqlite>::open(workload).await.expect("SQLite");
    let writer = Role { writers: 2, hot_capacity: 8, exhausts_pool: false, own_clock: false };
    let processes = vec![testbed.start(writer), testbed.start(Role { writers: 0, ..writer })];
    let changes = async || {
        let business = testbed.count("business").await;
        (business, testbed.count("outbox_event WHERE status = 1").await)
    };
    eventually("events are delivered", async || changes().await.1 > 1_000).await;
    processes.iter().for_each(|process| process.limit_files(Some(FILE_LIMIT)));
    // Wait until nothing has been written for a second.
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
    // This process has no limit. The other two have nothing to write while no event is due.
    let logs = || processes.iter().map(|process| process.log_text()).collect::<String>();
    eventually("the full disk is logged", async || {
        write_event(&testbed).await;
        logs().contains("ERROR")
    })
    .await;
    processes.iter().for_each(|process| process.limit_files(None));
    eventually("events are written again", async || changes().await.0 > business + 500).await;
    eventually("events are delivered again", async || changes().await.1 > done + 500).await;
    testbed.settle(processes).await;
    let invariants = Invariants::check(&testbed, &HashMap::new()).await;
    println!("{business} events before the disk was full, {} in the end", invariants.events);
    invariants.assert_hold(&[]);
}

/// Commits an event and its business write.
async fn write_event(testbed: &Testbed<Sqlite>) {
    let event = event(PLAIN);
    let writer = Writer::new(testbed.db.pool.clone(), Table::default());
    let mut tx = writer.begin().await.unwrap();
    let insert = sqlx::query("INSERT INTO business VALUES (?)");
    insert.bind(event.event_id().to_string()).execute(&mut *tx).await.unwrap();
    tx.write(event).unwrap();
    tx.commit().await.unwrap();
}
