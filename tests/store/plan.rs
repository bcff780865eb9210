//! Query plans that use an index, and claims whose cost does not grow with the table.

use std::time::{Duration, Instant};

use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, Explained, Quota, Settlement, Store, TypeFilter};
use outbox_tests::{Fresh, Round, TestDatabase, TestTable, lease, on_every_database, unnamed};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::claim::{quota, request};
use super::settle::settlement;

/// Returns the table size. The long run has very large tables; the short one is large enough for the planner.
fn size(short: u64, long: u64) -> u64 {
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { long } else { short }
}

async fn every_bounded_statement_uses_its_index<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    // The index of dead rows is ordered by the key, too.
    let by_key = &[DB::BY_KEY, "outbox_event_dead"];
    // Also while the table is small: a scan would lock the rows it reads.
    if DB::URL_VARIABLE != Some("OUTBOX_TEST_POSTGRES_URL") {
        db.fill("A", 0, 1, 3).await;
        for statement in store.by_key(&[7]) {
            assert_plan(&store, statement, by_key).await;
        }
    }
    let (pending, done) = (size(20_000, 200_000), size(50_000, 500_000));
    db.fill("A", 0, 11, pending).await;
    db.fill("A", 1, 1_000_001, done).await;
    db.fill("A", 2, 2_000_001, pending / 10).await;
    db.fill("A", 3, 3_000_001, pending / 100).await;
    db.run(DB::ANALYZE).await;
    let known = store.type_filter(unnamed(&[("Order", "A"), ("Order", "B")]));
    for statement in store.bounded(&known, None) {
        assert_plan(&store, statement, &["outbox_event_"]).await;
    }
    for statement in store.by_key(&[7]) {
        assert_plan(&store, statement, by_key).await;
    }
}

async fn the_search_for_blocked_aggregates_uses_indexes<DB: TestDatabase>(db: Fresh<DB>) {
    super::blocked::ordered(&db, "block").await;
    let store = db.store().await;
    let pending = size(20_000, 200_000);
    db.fill("A", 0, 1, pending).await;
    db.fill("A", 2, 2_000_001, pending / 10).await;
    db.fill("A", 3, 3_000_001, pending / 10).await;
    db.run("UPDATE outbox_event SET aggregate_id = SUBSTR(event_id, 1, 4)").await;
    db.run(DB::ANALYZE).await;
    for statement in store.blocked_statements(&["Order\u{1f}e1"], &[1]) {
        let indexes = match statement.0 {
            "blocked candidates" => ["outbox_event_claim", "outbox_event_dead"],
            _ => ["outbox_event_ordered"; 2],
        };
        assert_plan(&store, statement, &indexes).await;
    }
}

async fn assert_plan<DB: TestDatabase>(
    store: &Store<DB>,
    (name, sql, args): Explained,
    indexes: &[&str],
) {
    let explain = AssertSqlSafe(format!("{}{}", DB::EXPLAIN, sql.as_str())).into_sql_str();
    let mut tx = store.begin_explaining().await.unwrap();
    if let Some(show) = DB::PLAN_FORMAT {
        DB::run(&mut tx, show.into_sql_str()).await.unwrap();
    }
    let rows = DB::fetch(&mut tx, explain, args).await.unwrap();
    let text = |row| DB::text(row, DB::PLAN_COLUMN).unwrap().unwrap_or_default();
    let plan: Vec<String> = rows.iter().map(text).collect();
    let whole = plan.join("\n") + "\n";
    // A temporary table of the statement may be scanned.
    let is_own = |part: &&str| {
        ["<", "capped", "ours", "settlement", "old"].iter().any(|name| part.starts_with(name))
    };
    let plan = whole.split("\"table_name\": \"").filter(|part| !is_own(part));
    let plan = plan.collect::<Vec<_>>().join("\"table_name\": \"");
    for costly in DB::COSTLY {
        assert!(!plan.contains(costly), "{name} has {costly}:\n{whole}\n{}", sql.as_str());
    }
    // MySQL answers a minimum from the index alone, without naming it in the plan.
    let answered = whole.contains("optimized away");
    let used = answered || indexes.iter().any(|index| plan.contains(index));
    assert!(used, "{name} uses none of {indexes:?}:\n{whole}");
}

/// Waits until the server has cleaned up old row versions, which would distort the measurement.
async fn wait_for_cleanup<DB: TestDatabase>(db: &Fresh<DB>) {
    let start = Instant::now();
    while let Some(cleanup_pending) = DB::CLEANUP_PENDING
        && start.elapsed() < Duration::from_secs(60)
        && db.number(cleanup_pending).await > 100
    {
        tokio::task::yield_now().await;
    }
    db.run(DB::ANALYZE).await;
}

/// Returns the median time of several claims; their rows are deleted after each.
async fn claim_cost<DB: TestDatabase>(store: &Store<DB>, known: &TypeFilter) -> Duration {
    const CLAIMS: usize = 30;
    let mut times = Vec::new();
    let mut watermark = None;
    for _ in 0..CLAIMS {
        let claim_request = Round {
            fresh: Quota { rows: 50, after: watermark, until: None },
            retried: quota(0),
            ..request("a", known)
        };
        let start = Instant::now();
        let claims = claim_request.claim(store).await.unwrap();
        times.push(start.elapsed());
        assert_eq!(claims.rows.len(), 50);
        watermark = claims.fresh_until;
        // Delete the rows, so that they do not return to the head of the queue.
        let done: Vec<Settlement> =
            claims.rows.iter().map(|row| settlement(row, Verdict::Done)).collect();
        store.settle("a", &done, Completion::Delete).await.unwrap();
    }
    times.sort_unstable();
    times[CLAIMS / 2]
}

async fn claim_cost_does_not_grow_with_the_table<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let known = store.type_filter(unnamed(&[("Order", "A")]));
    let (many, crowd) = (size(20_000, 200_000), size(10_000, 100_000));
    db.fill("A", 0, 1, 2_000).await;
    wait_for_cleanup(&db).await;
    let base = claim_cost(&store, &known).await;

    db.fill("A", 0, 10_001, many).await;
    wait_for_cleanup(&db).await;
    let backlog = claim_cost(&store, &known).await;

    // In flight: claimed by another node.
    let claim_request = Round {
        fresh: quota(usize::try_from(crowd).unwrap()),
        lease: outbox_runtime::store::Lease {
            length: Duration::from_secs(3_600),
            ..lease("other")
        },
        ..request("other", &known)
    };
    claim_request.claim(&store).await.unwrap();
    wait_for_cleanup(&db).await;
    let in_flight = claim_cost(&store, &known).await;

    // Not handled by this node, and due before everything else.
    db.fill("Unknown", 0, 1_000_001, crowd).await;
    let age = DB::AGE.replace("{table}", "outbox_event").replace("{micros}", "3600000000");
    db.run(age + " WHERE event_type = 'Unknown'").await;
    wait_for_cleanup(&db).await;
    let unknown = claim_cost(&store, &known).await;

    let ratio = |cost: Duration| cost.as_secs_f64() / base.as_secs_f64();
    let ratios = [ratio(backlog), ratio(in_flight), ratio(unknown)];
    println!("claim {base:?}; ratios: backlog, in flight, unknown {ratios:.2?}");
    // Other tests run concurrently with the short run, so its bound only detects a scan.
    let bound = if std::env::var_os("OUTBOX_TEST_LONG").is_some() { 1.5 } else { 25.0 };
    assert!(ratios.iter().all(|ratio| *ratio < bound), "{ratios:?} of {base:?}");
    assert!((&db, &store).count().await > 0);
}

on_every_database!(
    every_bounded_statement_uses_its_index,
    the_search_for_blocked_aggregates_uses_indexes,
    claim_cost_does_not_grow_with_the_table,
);
