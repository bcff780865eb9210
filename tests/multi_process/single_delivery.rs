//! Several nodes on one table: every event is delivered exactly once.

use std::collections::HashMap;
use std::time::Duration;

use outbox::EventEnvelope;
use outbox_tests::{Fresh, Node, TestDatabase, TestTable, event, eventually};
use sqlx::ConnectOptions;

/// The parameters of a test.
#[derive(Clone, Copy)]
struct Plan {
    /// Number of events that each of the two nodes writes, and number of events inserted by the test.
    hot: u64,
    cold: usize,
    options: &'static [(&'static str, u64)],
    /// The time for which one node is stopped.
    stopped: Option<Duration>,
}

async fn every_event_is_delivered_once<DB: TestDatabase>(
    db: Fresh<DB>,
    database: &str,
    plan: Plan,
) {
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let store = db.store().await;
    let program = env!("CARGO_BIN_EXE_node");
    let options: Vec<(&str, u64)> =
        plan.options.iter().copied().chain([("events", plan.hot)]).collect();
    let mut nodes = [(); 2].map(|()| Node::start(program, database, &url, &options));
    nodes.iter_mut().for_each(|node| node.expect_line("ready"));
    let cold: Vec<EventEnvelope> = (0..plan.cold).map(|_| event("A")).collect();
    for chunk in cold.chunks(100) {
        (&db, &store).insert_due(chunk).await;
    }
    if let Some(time) = plan.stopped {
        nodes[0].signal("-STOP");
        let stopped = std::time::Instant::now();
        eventually("the time has passed", async || stopped.elapsed() > time).await;
        nodes[0].signal("-CONT");
    }
    nodes.iter_mut().for_each(|node| node.expect_line("written"));
    let events = i64::try_from(plan.hot * 2).unwrap() + i64::try_from(plan.cold).unwrap();
    eventually("all are done", async || {
        db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 1").await == events
    })
    .await;
    let delivered = nodes.map(Node::stop);
    let shares: Vec<usize> = delivered.iter().map(Vec::len).collect();
    let mut times: HashMap<&str, u32> = HashMap::new();
    for id in delivered.iter().flatten() {
        *times.entry(id).or_default() += 1;
    }
    let twice = times.values().filter(|count| **count > 1).count();
    println!("{database}: shares {shares:?}, delivered twice {twice}");
    assert_eq!(
        (times.len() as i64, twice),
        (events, 0),
        "(events delivered, of these more than once)"
    );
    assert!(shares.iter().all(|share| *share > 0), "both nodes delivered events: {shares:?}");
    assert_eq!(db.number("SELECT COUNT(locked_by) FROM outbox_event").await, 0);
}

macro_rules! plans {
    ($($name:ident: $plan:expr;)*) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(db) = outbox_tests::Fresh::<sqlx::Postgres>::new().await {
                    super::every_event_is_delivered_once(db, "postgres", $plan).await;
                }
            })*
        }

        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(db) = outbox_tests::Fresh::<sqlx::MySql>::new().await {
                    super::every_event_is_delivered_once(db, "mysql", $plan).await;
                }
            })*
        }
    };
}

plans! {
    events_are_delivered_once_by_two_nodes: super::HOT_AND_COLD;
    events_are_delivered_once_with_long_transactions: super::LONG_TRANSACTIONS;
    events_are_delivered_once_with_a_small_hot_queue: super::SMALL_HOT_QUEUE;
    events_are_delivered_once_if_a_node_stops_briefly: super::BRIEF_STOP;
}

const HOT_AND_COLD: Plan = Plan { hot: 5_000, cold: 10_000, options: &[], stopped: None };

const LONG_TRANSACTIONS: Plan = Plan {
    hot: 5_000,
    cold: 10_000,
    options: &[("lease_ms", 1_000), ("open_ms", 3_000), ("size", 500), ("writers", 10)],
    stopped: None,
};

const SMALL_HOT_QUEUE: Plan =
    Plan { hot: 5_000, cold: 10_000, options: &[("hot_capacity", 10), ("size", 5)], stopped: None };

const BRIEF_STOP: Plan = Plan {
    hot: 5_000,
    cold: 10_000,
    options: &[("lease_ms", 10_000)],
    stopped: Some(Duration::from_secs(3)),
};
