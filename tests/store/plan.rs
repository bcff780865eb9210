//! What the statements cost: plans that use an index, and claims whose cost does not grow.

use std::time::{Duration, Instant};

use outbox_runtime::store::{
    ClaimRequest, Completion, Explained, Quota, Settlement, Store, TypeFilter, Verdict,
};
use outbox_tests::{Fresh, Rows, TestDatabase, lease, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::claim::{quota, request};
use super::settle::of;

/// The long run has tables as large as they get; the short one is large enough for the planner.
fn size(short: u64, long: u64) -> u64 {
    if std::env::var_os("OUTBOX_TEST_LONG").is_some() { long } else { short }
}

async fn every_bounded_statement_uses_its_index<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    // The index of dead rows goes by the key as well.
    let by_key = &[DB::BY_KEY, "outbox_event_dead"];
    // Also while the table is small: a scan would lock what it reads.
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
    let known = store.type_filter([("Order", "A"), ("Order", "B")]);
    for statement in store.bounded(&known, None) {
        assert_plan(&store, statement, &["outbox_event_"]).await;
    }
    for statement in store.by_key(&[7]) {
        assert_plan(&store, statement, by_key).await;
    }
}

async fn assert_plan<DB: TestDatabase>(
    store: &Store<DB>,
    (name, sql, args): Explained,
    indexes: &[&str],
) {
    let explain = AssertSqlSafe(format!("{}{}", DB::EXPLAIN, sql.as_str())).into_sql_str();
    let mut tx = store.begin_explaining().await.unwrap();
    if let Some(show) = DB::SHOW_PLANS {
        DB::run(&mut tx, show.into_sql_str()).await.unwrap();
    }
    let rows = DB::fetch(&mut tx, explain, args).await.unwrap();
    let text = |row| DB::text(row, DB::PLAN_COLUMN).unwrap().unwrap_or_default();
    let plan: Vec<String> = rows.iter().map(text).collect();
    let whole = plan.join("\n") + "\n";
    // A table that the statement makes for itself may be read as a whole.
    let is_own = |part: &&str| {
        ["<", "capped", "ours", "outcome", "old"].iter().any(|name| part.starts_with(name))
    };
    let plan = whole.split("\"table_name\": \"").filter(|part| !is_own(part));
    let plan = plan.collect::<Vec<_>>().join("\"table_name\": \"");
    for costly in DB::COSTLY {
        assert!(!plan.contains(costly), "{name} has {costly}:\n{whole}\n{}", sql.as_str());
    }
    // MySQL answers a minimum from the index alone, and does not even name it.
    let answered = whole.contains("optimized away");
    let used = answered || indexes.iter().any(|index| plan.contains(index));
    assert!(used, "{name} uses none of {indexes:?}:\n{whole}");
}

/// Waits until the server has tidied up, which takes its time and would be measured with the claims.
async fn settle<DB: TestDatabase>(db: &Fresh<DB>) {
    let start = Instant::now();
    while let Some(untidy) = DB::UNTIDY
        && start.elapsed() < Duration::from_secs(60)
        && db.number(untidy).await > 100
    {
        tokio::task::yield_now().await;
    }
    db.run(DB::ANALYZE).await;
}

/// The median time of some claims, each given back at once.
async fn claim_cost<DB: TestDatabase>(store: &Store<DB>, known: &TypeFilter) -> Duration {
    const CLAIMS: usize = 30;
    let mut times = Vec::new();
    let mut watermark = None;
    for _ in 0..CLAIMS {
        let asked = ClaimRequest {
            fresh: Quota { rows: 50, after: watermark, until: None },
            retried: quota(0),
            ..request("a", known)
        };
        let start = Instant::now();
        let claims = store.claim(asked).await.unwrap();
        times.push(start.elapsed());
        assert_eq!(claims.rows.len(), 50);
        watermark = claims.fresh_until;
        // Out of the way, and not back at the head.
        let done: Vec<Settlement> = claims.rows.iter().map(|row| of(row, Verdict::Done)).collect();
        store.finish("a", &done, Completion::Delete).await.unwrap();
    }
    times.sort_unstable();
    times[CLAIMS / 2]
}

async fn a_claim_costs_the_same_whatever_waits<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let known = store.type_filter([("Order", "A")]);
    let (many, crowd) = (size(20_000, 200_000), size(10_000, 100_000));
    db.fill("A", 0, 1, 2_000).await;
    settle(&db).await;
    let base = claim_cost(&store, &known).await;

    db.fill("A", 0, 10_001, many).await;
    settle(&db).await;
    let backlog = claim_cost(&store, &known).await;

    // In flight: claimed by another node.
    let asked = ClaimRequest {
        fresh: quota(usize::try_from(crowd).unwrap()),
        lease: outbox_runtime::store::Lease {
            length: Duration::from_secs(3_600),
            ..lease("other")
        },
        ..request("other", &known)
    };
    store.claim(asked).await.unwrap();
    settle(&db).await;
    let in_flight = claim_cost(&store, &known).await;

    // Unknown here, and due before everything else.
    db.fill("Unknown", 0, 1_000_001, crowd).await;
    let age = DB::AGE.replace("{table}", "outbox_event").replace("{micros}", "3600000000");
    db.run(age + " WHERE event_type = 'Unknown'").await;
    settle(&db).await;
    let unknown = claim_cost(&store, &known).await;

    let ratio = |cost: Duration| cost.as_secs_f64() / base.as_secs_f64();
    let ratios = [ratio(backlog), ratio(in_flight), ratio(unknown)];
    println!("claim {base:?}; ratios: backlog, in flight, unknown {ratios:.2?}");
    // Other tests run beside the short run, so its bound catches nothing but a scan.
    let bound = if std::env::var_os("OUTBOX_TEST_LONG").is_some() { 1.5 } else { 25.0 };
    assert!(ratios.iter().all(|ratio| *ratio < bound), "{ratios:?} of {base:?}");
    assert!((&db, &store).count().await > 0);
}

on_every_database!(every_bounded_statement_uses_its_index, a_claim_costs_the_same_whatever_waits);
