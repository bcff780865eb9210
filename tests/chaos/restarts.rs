//! A server that is restarted again and again under load.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use outbox_tests::eventually;
use sqlx::Postgres;
use tokio::time::{Instant, Interval, interval};

use crate::invariants::Verdict;
use crate::process::Role;
use crate::testbed::{Arena, End, Habits};

/// Deliveries of the last second, looked at several times in a second.
struct Rate {
    ticks: Interval,
    counts: VecDeque<(Instant, i64)>,
}

impl Rate {
    const WINDOW: Duration = Duration::from_secs(1);

    fn new() -> Self {
        Self { ticks: interval(Duration::from_millis(100)), counts: VecDeque::new() }
    }

    /// The next figure, in events per second.
    async fn next(&mut self, arena: &Arena<Postgres>) -> f64 {
        loop {
            self.ticks.tick().await;
            let done = arena.count("outbox_event WHERE status = 1").await;
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
async fn throughput_is_back_within_five_seconds_of_each_of_ten_restarts() {
    let _alone = crate::alone().await;
    let lease = Duration::from_secs(30);
    let habits = Habits { lease, pace: Duration::from_millis(20), failing: 0, seed: 1 };
    let Some(mut arena) = Arena::<Postgres>::open(habits).await else { return };
    let writer = Role { writers: 4, seats: 100, exhausts: false, own_clock: false };
    let children: Vec<_> = [writer, writer, Role { writers: 0, ..writer }]
        .into_iter()
        .map(|role| arena.start(role))
        .collect();
    eventually("they work", async || arena.count("outbox_event WHERE status = 1").await > 500)
        .await;
    let mut rate = Rate::new();
    let mut before = Vec::new();
    while before.len() < 30 {
        before.push(rate.next(&arena).await);
    }
    before.sort_by(f64::total_cmp);
    let median = before[before.len() / 2];
    let mut waits = Vec::new();
    for end in [End::Killed, End::Stopped].into_iter().cycle().take(10) {
        let (_, lasted) = arena.outage(end, Duration::ZERO).await;
        let answers = Instant::now();
        let mut rate = Rate::new();
        while rate.next(&arena).await < 0.7 * median {
            assert!(answers.elapsed() < Duration::from_secs(30), "never again: {waits:?}");
        }
        waits.push((lasted, answers.elapsed()));
    }
    arena.settle(children).await;
    println!("{median:.0} deliveries/s; away, and back at 70 % of it: {waits:.1?}");
    Verdict::of(&arena, &HashMap::new()).await.assert_right(&[]);
    assert!(waits.iter().all(|(_, wait)| *wait <= Duration::from_secs(5)), "{waits:?}");
}
