//! Repeated server restarts under load.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use outbox_tests::eventually;
use sqlx::Postgres;
use tokio::time::{Instant, Interval, interval};

use crate::invariants::Invariants;
use crate::process::Role;
use crate::testbed::{ServerExit, Testbed, Workload};

/// Measures the deliveries of the last second, several times per second.
struct Rate {
    ticks: Interval,
    counts: VecDeque<(Instant, i64)>,
}

impl Rate {
    const WINDOW: Duration = Duration::from_secs(1);

    fn new() -> Self {
        Self { ticks: interval(Duration::from_millis(100)), counts: VecDeque::new() }
    }

    /// Returns the next measurement, in events per second.
    async fn next(&mut self, testbed: &Testbed<Postgres>) -> f64 {
        loop {
            self.ticks.tick().await;
            let done = testbed.count("outbox_event WHERE status = 1").await;
            let now = Instant::now();
            self.counts.push_back((now, done));
            let Some((first, before)) = self.counts.front().copied() else { continue };
            if now - first >= Self::WINDOW {
                self.counts.pop_front();
                return (done - before) as f64 / (now - first).as_secs_f64();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throughput_recovers_within_five_seconds_of_each_restart() {
    let _exclusive = crate::exclusive().await;
    let lease = Duration::from_secs(30);
    let workload =
        Workload { lease, write_interval: Duration::from_millis(20), failing: 0, seed: 1 };
    let Some(mut testbed) = Testbed::<Postgres>::open(workload).await else { return };
    let writer = Role { writers: 4, hot_capacity: 100, exhausts_pool: false, own_clock: false };
    let processes: Vec<_> = [writer, writer, Role { writers: 0, ..writer }]
        .into_iter()
        .map(|role| testbed.start(role))
        .collect();
    eventually("events are delivered", async || {
        testbed.count("outbox_event WHERE status = 1").await > 500
    })
    .await;
    let mut rate = Rate::new();
    let mut before = Vec::new();
    while before.len() < 30 {
        before.push(rate.next(&testbed).await);
    }
    before.sort_by(f64::total_cmp);
    let median = before[before.len() / 2];
    let mut waits = Vec::new();
    for end in [ServerExit::Killed, ServerExit::Stopped].into_iter().cycle().take(10) {
        let (_, lasted) = testbed.outage(end, Duration::ZERO).await;
        let restarted = Instant::now();
        let mut rate = Rate::new();
        while rate.next(&testbed).await < 0.7 * median {
            assert!(
                restarted.elapsed() < Duration::from_secs(30),
                "throughput did not recover: {waits:?}"
            );
        }
        waits.push((lasted, restarted.elapsed()));
    }
    testbed.settle(processes).await;
    println!("{median:.0} deliveries/s; outage, and time to 70 % of it: {waits:.1?}");
    Invariants::check(&testbed, &HashMap::new()).await.assert_hold(&[]);
    assert!(waits.iter().all(|(_, wait)| *wait <= Duration::from_secs(5)), "{waits:?}");
}
