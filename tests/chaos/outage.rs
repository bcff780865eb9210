//! A long server outage, with leases that are longer.

use std::collections::HashMap;
use std::time::Duration;

use outbox_tests::eventually;
use sqlx::{MySql, Postgres};

use crate::database::FaultDatabase;
use crate::invariants::Invariants;
use crate::process::Role;
use crate::testbed::{ServerExit, Testbed, Workload};

const OUTAGE: Duration = Duration::from_secs(20);

async fn an_outage_shorter_than_the_lease_repeats_no_delivery<DB: FaultDatabase>() {
    let lease = Duration::from_secs(60);
    let workload =
        Workload { lease, write_interval: Duration::from_millis(10), failing: 0, seed: 1 };
    let Some(mut testbed) = Testbed::<DB>::open(workload).await else { return };
    let writer = Role { writers: 3, hot_capacity: 8, exhausts_pool: false, own_clock: false };
    let processes = vec![testbed.start(writer), testbed.start(Role { writers: 0, ..writer })];
    eventually("events are delivered", async || {
        testbed.count("outbox_event WHERE status = 1").await > 500
    })
    .await;
    let (in_flight, lasted) = testbed.outage(ServerExit::Stopped, OUTAGE).await;
    let done = testbed.count("outbox_event WHERE status = 1").await;
    let more = async || testbed.count("outbox_event WHERE status = 1").await > done + 500;
    eventually("events are delivered again", more).await;
    testbed.settle(processes).await;
    let invariants = Invariants::check(&testbed, &HashMap::new()).await;
    println!(
        "{}: outage of {lasted:?}, {} in flight, {} events",
        DB::SHORT_NAME,
        in_flight.len(),
        invariants.events
    );
    invariants.assert_hold(&[]);
    assert!(lasted >= OUTAGE && !in_flight.is_empty(), "events were in flight");
    assert_eq!(invariants.repeated, 0);
}

/// Both databases concurrently: most of the test is waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_outage_of_twenty_seconds() {
    let _exclusive = crate::exclusive().await;
    tokio::join!(
        an_outage_shorter_than_the_lease_repeats_no_delivery::<Postgres>(),
        an_outage_shorter_than_the_lease_repeats_no_delivery::<MySql>()
    );
}
