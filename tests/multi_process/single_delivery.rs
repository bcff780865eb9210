//! Several processes on one table: every event is delivered exactly once.

use std::collections::HashMap;
use std::time::Duration;

use outbox::EventEnvelope;
use outbox_tests::{Fresh, Node, TestDatabase, TestTable, event, eventually};
use sqlx::ConnectOptions;

/// What one test does.
#[derive(Clone, Copy)]
struct Plan {
    /// How many events each of the two processes writes, and how many nobody's hot path sees.
    hot: u64,
    cold: usize,
    options: &'static [(&'static str, u64)],
    /// One process is stopped for so long.
    stopped: Option<Duration>,
}

async fn every_event_once<DB: TestDatabase>(db: Fresh<DB>, database: &str, plan: Plan) {
    let url = db.pool.connect_options().to_url_lossy().to_string();
    let store = db.store().await;
    let program = env!("CARGO_BIN_EXE_node");
    let options: Vec<(&str, u64)> =
        plan.options.iter().copied().chain([("events", plan.hot)]).collect();
    let mut nodes = [(); 2].map(|()| Node::start(program, database, &url, &options));
    nodes.iter_mut().for_each(|node| node.says("ready"));
    let cold: Vec<EventEnvelope> = (0..plan.cold).map(|_| event("A")).collect();
    for chunk in cold.chunks(100) {
        (&db, &store).insert_due(chunk).await;
    }
    if let Some(time) = plan.stopped {
        nodes[0].signal("-STOP");
        let stopped = std::time::Instant::now();
        eventually("some time has passed", async || stopped.elapsed() > time).await;
        nodes[0].signal("-CONT");
    }
    nodes.iter_mut().for_each(|node| node.says("written"));
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
    assert_eq!((times.len() as i64, twice), (events, 0), "delivered, and of these repeatedly");
    assert!(shares.iter().all(|share| *share > 0), "both took part: {shares:?}");
    assert_eq!(db.number("SELECT COUNT(locked_by) FROM outbox_event").await, 0);
}

macro_rules! plans {
    ($($name:ident: $plan:expr;)*) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(db) = outbox_tests::Fresh::<sqlx::Postgres>::new().await {
                    super::every_event_once(db, "postgres", $plan).await;
                }
            })*
        }

        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(db) = outbox_tests::Fresh::<sqlx::MySql>::new().await {
                    super::every_event_once(db, "mysql", $plan).await;
                }
            })*
        }
    };
}

plans! {
    hot_and_cold: super::HOT_AND_COLD;
    transactions_open_for_three_leases: super::LONG_TRANSACTIONS;
    a_lane_of_ten_seats: super::TEN_SEATS;
    one_process_stopped_for_less_than_its_lease: super::STOPPED;
}

const HOT_AND_COLD: Plan = Plan { hot: 5_000, cold: 10_000, options: &[], stopped: None };

const LONG_TRANSACTIONS: Plan = Plan {
    hot: 5_000,
    cold: 10_000,
    options: &[("lease_ms", 1_000), ("open_ms", 3_000), ("size", 500), ("writers", 10)],
    stopped: None,
};

const TEN_SEATS: Plan =
    Plan { hot: 5_000, cold: 10_000, options: &[("seats", 10), ("size", 5)], stopped: None };

const STOPPED: Plan = Plan {
    hot: 5_000,
    cold: 10_000,
    options: &[("lease_ms", 10_000)],
    stopped: Some(Duration::from_secs(3)),
};
