//! Events with three recipients, some of them expanded by a relay, while processes are killed: every delivery of an
//! event happens, and only those in flight at a kill happen again.

use std::collections::HashMap;
use std::time::Duration;

use outbox_tests::uptime;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{MySql, Postgres, Sqlite};
use tokio::time::Instant;

use crate::database::FaultDatabase;
use crate::invariants::Invariants;
use crate::process::Role;
use crate::testbed::{Testbed, Workload};

const LEASE: Duration = Duration::from_secs(3);

/// The number of killed processes, and the time between two kills.
const KILLS: u32 = 16;
const INTERVAL: Duration = Duration::from_millis(500);

async fn every_recipient_gets_every_event<DB: FaultDatabase>(writers: u64) {
    let _exclusive = crate::exclusive().await;
    let seed = match std::env::var("OUTBOX_TEST_SEED") {
        Ok(seed) => seed.parse().expect("OUTBOX_TEST_SEED is a number"),
        Err(_) => rand::random_range(0..1_000_000_u64),
    };
    println!("{}: OUTBOX_TEST_SEED={seed}", DB::SHORT_NAME);
    let write_interval = Duration::from_millis(20);
    let workload = Workload { lease: LEASE, write_interval, failing: 5, seed };
    let Some(mut testbed) = Testbed::<DB>::open(workload).await else { return };
    testbed.settings.fan_out = true;
    let writer = Role { writers, hot_capacity: 20, exhausts_pool: false, own_clock: false };
    let roles = [writer, writer, Role { writers: 0, ..writer }];
    let mut processes = roles.map(|role| testbed.start(role));
    let (mut random, mut repeats) = (StdRng::seed_from_u64(seed), HashMap::<String, usize>::new());
    let (mut history, mut with_claims) = (Vec::new(), 0);
    let mut ticks = tokio::time::interval(INTERVAL);
    for _ in 0..KILLS {
        ticks.tick().await;
        let process = &mut processes[random.random_range(0..roles.len())];
        let begun = Instant::now();
        let mut checks = tokio::time::interval(Duration::from_millis(5));
        while testbed.in_flight(Some(process.node)).await.is_empty() && begun.elapsed() < LEASE / 4
        {
            checks.tick().await;
        }
        process.kill();
        let in_flight = testbed.in_flight(Some(process.node)).await;
        with_claims += u32::from(!in_flight.is_empty());
        let (at, node, rows) = (uptime().as_millis(), process.node, in_flight.len());
        history.push(format!("{at:>10} process {node} was killed with {rows} in flight"));
        for row in in_flight {
            *repeats.entry(row).or_default() += 1;
        }
        *process = testbed.start(process.role);
    }
    testbed.settle(Vec::from(processes)).await;
    let invariants = Invariants::check(&testbed, &repeats).await;
    println!(
        "{}: {} events, {} deliveries, {} calls ({} failed), {with_claims} of {KILLS} kills with claims, {} rows in \
         flight at a kill, {} delivered more than once",
        DB::SHORT_NAME,
        invariants.events,
        invariants.deliveries,
        invariants.calls,
        invariants.failed_calls,
        repeats.len(),
        invariants.repeated,
    );
    invariants.assert_hold(&history);
    assert!(invariants.deliveries > 2 * invariants.events && invariants.events > 500);
    assert!(with_claims >= KILLS / 4, "{with_claims} with claims");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    every_recipient_gets_every_event::<Postgres>(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    every_recipient_gets_every_event::<MySql>(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    every_recipient_gets_every_event::<Sqlite>(2).await;
}
