//! What the statements of ordered claims touch: bounded for each aggregate and each row, however many events wait, and
//! whatever statistics the planner has.

use outbox_runtime::store::{EXPLAINER, Store, Table, TypeFilter, migrate_ordered};
use outbox_tests::{Fresh, TestDatabase, on_every_database, unnamed};

const BATCH: usize = 200;
/// Number of executions after which a server keeps a generic plan.
const PREPARED: usize = 7;

/// The most that a statement may touch for each row or aggregate. A survey looks up an aggregate about twenty times on
/// MariaDB, which cannot limit a subquery by another row.
fn most(name: &str) -> u64 {
    match name {
        "candidates" => 12,
        "pending aggregates" => 12,
        "survey" => 120,
        _ => 60,
    }
}

async fn measure<DB: TestDatabase>(
    db: &Fresh<DB>,
    store: &Store<DB>,
    types: &TypeFilter,
    when: &str,
) {
    // The aggregate with most of the events is among them.
    let mut aggregates: Vec<String> = (0..BATCH).map(|id| format!("Order\u{1f}{id}")).collect();
    aggregates[0] = "Order\u{1f}many".to_owned();
    let rows: Vec<[String; 1]> = db
        .texts(format!(
            "SELECT CONCAT(sequence, '') FROM outbox_event WHERE status = 0 ORDER BY sequence LIMIT {BATCH}"
        ))
        .await;
    let rows: Vec<i64> = rows.iter().map(|[row]| row.parse().unwrap()).collect();
    let mut wrong = Vec::new();
    for (name, sql, args) in store.ordered(types, &aggregates, &rows) {
        let mut tx = store.begin_explaining().await.unwrap();
        let text = sql.as_str().to_owned();
        let cost = DB::cost(&mut tx, sql, args).await;
        tx.rollback().await.unwrap();
        let limit = 400 + most(name) * BATCH as u64;
        println!(
            "{} | {when} | {name} | {} of {limit} | {:?}",
            DB::SHORT_NAME,
            cost.touched,
            cost.took
        );
        if cost.touched > limit {
            wrong.push(format!("{name}: {} of {limit}\n{text}", cost.touched));
        }
    }
    assert!(wrong.is_empty(), "{when}: {}", wrong.join("\n"));
}

/// Returns a store on a single connection whose statements were planned while the table was empty.
async fn planned_when_empty<DB: TestDatabase>(db: &Fresh<DB>) -> (Store<DB>, TypeFilter) {
    migrate_ordered(&db.pool, &Table::default()).await.unwrap();
    if let Some(leave) = DB::FREEZE_STATISTICS {
        db.run(leave).await;
    }
    let store = Store::new(db.pool.clone(), Table::default()).explaining_relay().await.unwrap();
    let types = store.type_filter(unnamed(&[("Order", "A"), ("Order", "B")]));
    for _ in 0..PREPARED {
        for (_, sql, args) in store.ordered(&types, &["Order\u{1f}1".to_owned()], &[1]) {
            let mut tx = store.begin_explaining().await.unwrap();
            DB::cost(&mut tx, sql, args).await;
            tx.rollback().await.unwrap();
        }
    }
    (store, types)
}

/// Fills the table with pending events: half of them of one aggregate, the others of 10,000.
async fn fill<DB: TestDatabase>(db: &Fresh<DB>, events: u64) {
    db.fill("A", 0, 1, events).await;
    db.run(
        "UPDATE outbox_event SET aggregate_id = CASE WHEN sequence % 2 = 0 THEN 'many' \
         ELSE CONCAT((sequence / 2) % 10000, '') END WHERE status = 0",
    )
    .await;
    // Some of a lost owner, and some dead ones.
    db.run(format!(
        "UPDATE outbox_event SET locked_by = '{EXPLAINER}' WHERE sequence % 1000 = 7 AND status = 0"
    ))
    .await;
    db.run("UPDATE outbox_event SET status = 3 WHERE sequence % 5000 = 9").await;
}

async fn cost_is_bounded_when_never_analysed<DB: TestDatabase>(db: Fresh<DB>) {
    let (store, types) = planned_when_empty(&db).await;
    fill(&db, 100_000).await;
    measure(&db, &store, &types, "100,000 pending, never analysed").await;
}

async fn cost_is_bounded_when_analysed<DB: TestDatabase>(db: Fresh<DB>) {
    let (store, types) = planned_when_empty(&db).await;
    fill(&db, 100_000).await;
    db.run(DB::ANALYZE).await;
    measure(&db, &store, &types, "100,000 pending, analysed").await;
}

async fn cost_is_bounded_with_many_settled_rows<DB: TestDatabase>(db: Fresh<DB>) {
    let (store, types) = planned_when_empty(&db).await;
    db.fill("A", 1, 1_000_000, 300_000).await;
    db.run("UPDATE outbox_event SET aggregate_id = 'many'").await;
    fill(&db, 1_000).await;
    measure(&db, &store, &types, "300,000 settled of one aggregate").await;
}

on_every_database!(cost_is_bounded_when_never_analysed, cost_is_bounded_with_many_settled_rows);

mod servers {
    use super::cost_is_bounded_when_analysed;

    outbox_tests::on_every_server!(cost_is_bounded_when_analysed);
}
