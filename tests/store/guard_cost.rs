//! The cost of the guard against lost transactions: a transaction with one business row and one event,
//! through the writer and with plain sqlx.

use std::time::{Duration, Instant};

use outbox_runtime::store::StoreOf;
use outbox_tests::{Fresh, TestDatabase, TestTable, event, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::write::{business, writer};

const ROUNDS: i32 = 8;
const TRANSACTIONS: i32 = 40;

async fn the_transaction_guard_adds_little_cost<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    let mut ids = 0..;
    let (mut baseline, mut guarded) = (Vec::new(), Vec::new());
    // One prepared statement, as an application without the outbox would use.
    let on_postgres = DB::URL_VARIABLE == Some("OUTBOX_TEST_POSTGRES_URL");
    let [first, second] = if on_postgres { ["$1", "$2::json"] } else { ["?", "?"] };
    let now = DB::NOW;
    let insert = format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, status, attempts, \
         available_at, created_at) VALUES ({first}, 'Paid', 'Order', {second}, 0, 0, {now}, {now})"
    );
    let insert = AssertSqlSafe(insert).into_sql_str();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for id in ids.by_ref().take(TRANSACTIONS as usize) {
            let mut tx = db.pool.begin().await.unwrap();
            business::<DB>(&mut tx, id).await.unwrap();
            let envelope = event("Paid");
            let payload = envelope.payload().as_str();
            let args = vec![envelope.event_id().as_str().into(), payload.into()];
            DB::execute(&mut tx, insert.clone(), args).await.unwrap();
            tx.commit().await.unwrap();
        }
        baseline.push(start.elapsed());
        let start = Instant::now();
        for id in ids.by_ref().take(TRANSACTIONS as usize) {
            let mut tx = writer.begin().await.unwrap();
            business::<DB>(&mut tx, id).await.unwrap();
            tx.write(event("Paid")).unwrap();
            tx.commit().await.unwrap();
        }
        guarded.push(start.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() / f64::from(TRANSACTIONS)
    };
    let (baseline, guarded) = (median(&mut baseline), median(&mut guarded));
    let ratio = guarded / baseline;
    println!(
        "{}: baseline {:.0} us, guarded {:.0} us, ratio {ratio:.2}",
        std::any::type_name::<DB>(),
        baseline * 1e6,
        guarded * 1e6
    );
    // Other tests run concurrently, so this only detects many extra round trips, not a single one.
    assert!(ratio < 6.0, "{ratio}");
    let written = i64::from(2 * ROUNDS * TRANSACTIONS);
    assert_eq!((&db, writer.store()).count().await, written);
}

on_every_database!(the_transaction_guard_adds_little_cost);
