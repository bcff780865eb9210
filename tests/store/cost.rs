//! The number of pages or rows each statement touches, whatever statistics the planner has.
//!
//! An outbox is empty most of the day. Statements are prepared then, statistics are gathered then, and the
//! burst comes later. Each test prepares the statements on a single connection, brings the table into a
//! state that its statistics do not show, and checks an upper bound on what each statement touches per row.

use std::time::{Duration, SystemTime};

use outbox_runtime::store::{EXPLAINER, Explained, Store, Table, TypeFilter};
use outbox_tests::{Cost, Fresh, TestDatabase, every_unnamed, on_every_database, unnamed};
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};

/// Number of rows in a batch.
const BATCH: usize = 200;

/// Number of executions after which a server keeps a generic plan.
const PREPARED: usize = 7;

/// The most a statement may touch: a fixed part and one per row, in the units of [`Cost::touched`].
struct Bound {
    fixed: u64,
    per_row: u64,
}

/// An update of a row on PostgreSQL touches its page and five indexes, once for the old version and once
/// for the new one, each a few pages deep.
const CHANGE: Bound = Bound { fixed: 250, per_row: 45 };
const READ: Bound = Bound { fixed: 400, per_row: 12 };

/// Runs the statements until the server has planned them, while the table is empty.
async fn prepare<DB: TestDatabase>(store: &Store<DB>, known: &TypeFilter) {
    for _ in 0..PREPARED {
        for statement in every(store, known, None, &[1], &[2]) {
            run(store, statement, &[]).await;
        }
    }
}

fn every<DB: TestDatabase>(
    store: &Store<DB>,
    known: &TypeFilter,
    watermark: Option<SystemTime>,
    pending: &[i64],
    dead: &[i64],
) -> Vec<Explained> {
    let mut statements = store.bounded(known, watermark);
    statements.extend(store.counting(known));
    statements.extend(store.after(pending.iter().min().map_or(0, |first| first - 1)));
    statements.extend(store.by_key(pending));
    statements.extend(store.dead_by_key(dead));
    statements
}

/// Runs a statement in a transaction that is rolled back, with some rows claimed for it.
async fn run<DB: TestDatabase>(
    store: &Store<DB>,
    (_, sql, args): Explained,
    claimed: &[i64],
) -> Cost {
    let mut tx = store.begin_explaining().await.unwrap();
    if !claimed.is_empty() {
        let keys: Vec<String> = claimed.iter().map(i64::to_string).collect();
        let claim = format!(
            "UPDATE outbox_event SET locked_by = '{EXPLAINER}', claim_token = 1 \
             WHERE sequence IN ({}) AND status IN (0, 2)",
            keys.join(", ")
        );
        DB::run(&mut tx, AssertSqlSafe(claim).into_sql_str()).await.unwrap();
    }
    let cost = DB::cost(&mut tx, sql, args).await;
    tx.rollback().await.unwrap();
    cost
}

/// Measures every statement and fails if one touches too much.
async fn measure<DB: TestDatabase>(
    db: &Fresh<DB>,
    store: &Store<DB>,
    known: &TypeFilter,
    watermark: Option<SystemTime>,
    condition: &str,
) {
    let some = async |filter: &str| {
        let sql = format!(
            "SELECT CAST(sequence AS CHAR(20)) FROM outbox_event WHERE {filter} \
             ORDER BY sequence DESC LIMIT {BATCH}"
        );
        let rows: Vec<[String; 1]> = db.texts(sql).await;
        rows.iter().map(|[key]| key.trim().parse().unwrap()).collect::<Vec<i64>>()
    };
    let (pending, dead) = (some("status IN (0, 2)").await, some("status = 3").await);
    let mut wrong = Vec::new();
    for statement in every(store, known, watermark, &pending, &dead) {
        let (name, sql) = (statement.0, statement.1.clone());
        let cost = run(store, statement, &pending).await;
        let text = sql.as_str();
        let is_read = text.starts_with("SELECT");
        let bound = if is_read { READ } else { CHANGE };
        // The most rows a statement can process.
        let rows = match name {
            "peek" => 0,
            "purge" | "aged" => 500,
            "recently done" | "old done" | "old dead" | "dead count" | "dead gauge"
            | "count pending" | "count unknown" | "unroutable types" => 100_000,
            _ => BATCH as u64,
        };
        let most = bound.fixed + bound.per_row * rows.max(1);
        println!(
            "{} | {condition} | {name} | {} | {:.1} | {:.2} ms",
            DB::SHORT_NAME,
            cost.touched,
            cost.touched as f64 / rows.max(1) as f64,
            cost.took.as_secs_f64() * 1_000.0
        );
        if cost.touched > most {
            wrong.push(format!("{name}: {} of {most}, {:?}\n{text}", cost.touched, cost.took));
        }
    }
    assert!(wrong.is_empty(), "{condition}: {}", wrong.join("\n"));
}

/// Returns a store on a single connection, so that a plan made early is the one used later.
async fn single<DB: TestDatabase>(db: &Fresh<DB>) -> Store<DB> {
    let store = db.store().await;
    if let Some(leave) = DB::FREEZE_STATISTICS {
        db.run(leave).await;
    }
    store.explaining_relay().await.unwrap()
}

/// Fills the table with a burst of pending events, retried ones, and dead ones from before.
async fn burst<DB: TestDatabase>(db: &Fresh<DB>, rows: u64) {
    db.fill("A", 0, 10_000_001, rows).await;
    db.fill("A", 2, 20_000_001, rows / 10).await;
    db.fill("A", 3, 30_000_001, 500).await;
}

async fn cost_is_bounded_when_never_analysed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = single(&db).await;
    let known = store.type_filter(unnamed(&[("Order", "A"), ("Order", "B")]));
    prepare(&store, &known).await;
    burst(&db, 100_000).await;
    measure(&db, &store, &known, None, "never analysed").await;
}

/// Claims every event type except those of a paused listener.
async fn cost_is_bounded_when_event_types_are_excluded<DB: TestDatabase>(db: Fresh<DB>) {
    let store = single(&db).await;
    let known =
        store.type_filter_except(every_unnamed(), unnamed(&[("Order", "B"), ("Order", "C")]));
    prepare(&store, &known).await;
    burst(&db, 100_000).await;
    measure(&db, &store, &known, None, "some types excluded").await;
}

/// Statements on the application's connections carry their planner settings themselves.
async fn cost_is_bounded_in_the_applications_pool<DB: TestDatabase>(db: Fresh<DB>) {
    single(&db).await;
    let store = Store::new(db.single().await, Table::default());
    let known = store.type_filter(unnamed(&[("Order", "A"), ("Order", "B")]));
    prepare(&store, &known).await;
    burst(&db, 100_000).await;
    measure(&db, &store, &known, None, "never analysed, in the application's pool").await;
}

async fn cost_is_bounded_when_analysed_empty<DB: TestDatabase>(db: Fresh<DB>) {
    let store = single(&db).await;
    let known = store.type_filter(unnamed(&[("Order", "A"), ("Order", "B")]));
    db.run(DB::ANALYZE).await;
    prepare(&store, &known).await;
    burst(&db, 100_000).await;
    measure(&db, &store, &known, None, "analysed when empty").await;
}

async fn cost_is_bounded_when_analysed_full_then_emptied<DB: TestDatabase>(db: Fresh<DB>) {
    let store = single(&db).await;
    let known = store.type_filter(unnamed(&[("Order", "A"), ("Order", "B")]));
    db.fill("A", 0, 1, 100_000).await;
    db.run(DB::ANALYZE).await;
    prepare(&store, &known).await;
    db.run("DELETE FROM outbox_event").await;
    burst(&db, 1_000).await;
    measure(&db, &store, &known, Some(after_deleted()), "analysed when full, then emptied").await;
}

async fn cost_is_bounded_behind_an_old_snapshot<DB: TestDatabase>(db: Fresh<DB>) {
    let store = single(&db).await;
    let known = store.type_filter(unnamed(&[("Order", "A"), ("Order", "B")]));
    prepare(&store, &known).await;
    db.fill("A", 0, 1, 200_000).await;
    db.fill("A", 1, 1_000_001, 200_000).await;
    let mut old = DB::Connection::connect_with(&db.pool.connect_options()).await.unwrap();
    for begin in DB::SNAPSHOT {
        DB::run(&mut old, begin.into_sql_str()).await.unwrap();
    }
    db.run("DELETE FROM outbox_event").await;
    burst(&db, 1_000).await;
    measure(&db, &store, &known, Some(after_deleted()), "behind an old snapshot").await;
    drop(old);
}

async fn cost_is_bounded_with_a_million_settled_rows<DB: TestDatabase>(db: Fresh<DB>) {
    let store = single(&db).await;
    let known = store.type_filter(unnamed(&[("Order", "A"), ("Order", "B")]));
    prepare(&store, &known).await;
    db.fill("A", 1, 1, 1_000_000).await;
    burst(&db, 1_000).await;
    measure(&db, &store, &known, None, "a million settled").await;
}

/// The number of waiting events of one aggregate is limited as well. The statements are planned while the table is
/// empty.
async fn cost_of_the_search_for_blocked_aggregates_is_bounded<DB: TestDatabase>(db: Fresh<DB>) {
    super::blocked::ordered(&db, "block").await;
    let store = single(&db).await;
    let aggregates: Vec<String> = (1..=BATCH).map(|id| format!("Order\u{1f}{id}")).collect();
    let aggregates: Vec<&str> = aggregates.iter().map(String::as_str).collect();
    for _ in 0..PREPARED {
        for statement in store.blocked_statements(&aggregates, &[1]) {
            run(&store, statement, &[]).await;
        }
    }
    // Dead letters, and behind them far more events than are counted.
    burst(&db, 100_000).await;
    db.run("UPDATE outbox_event SET aggregate_id = '1'").await;
    let heads = "SELECT CAST(sequence AS CHAR(20)) FROM outbox_event WHERE status = 3 LIMIT 100";
    let heads: Vec<[String; 1]> = db.texts(heads).await;
    let heads: Vec<i64> = heads.iter().map(|[key]| key.trim().parse().unwrap()).collect();
    let mut wrong = Vec::new();
    for statement in store.blocked_statements(&aggregates, &heads) {
        let name = statement.0;
        let rows = match name {
            "blocked candidates" => 10_000,
            // For each aggregate four searches.
            "blocked first" => 4 * BATCH as u64,
            // For each of the heads a thousand entries of the index, twice. MySQL counts entries, where the others count
            // pages. Without the limit they would be ten million.
            _ => 100 * 2 * 1_000 / READ.per_row,
        };
        let cost = run(&store, statement, &[]).await;
        let most = READ.fixed + READ.per_row * rows;
        println!("{} | blocked | {name} | {} | {:?}", DB::SHORT_NAME, cost.touched, cost.took);
        if cost.touched > most {
            wrong.push(format!("{name}: {} of {most}, {:?}", cost.touched, cost.took));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the watermark behind the deleted rows. Row `n` was due two days ago plus `n` microseconds.
fn after_deleted() -> SystemTime {
    SystemTime::now() - Duration::from_secs(172_800)
}

on_every_database!(
    cost_is_bounded_when_never_analysed,
    cost_is_bounded_when_event_types_are_excluded,
    cost_is_bounded_in_the_applications_pool,
    cost_is_bounded_when_analysed_empty,
    cost_is_bounded_when_analysed_full_then_emptied,
    cost_is_bounded_behind_an_old_snapshot,
    cost_is_bounded_with_a_million_settled_rows,
    cost_of_the_search_for_blocked_aggregates_is_bounded,
);
