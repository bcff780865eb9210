//! Rows that were written by another program, or damaged: a claim must handle all of them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox::ListenerError;
use outbox::listener::{Delivery, ListenerErrorKind, ListenerRegistry};
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Claim, Completion, DeadFilter, Settlement, Store, TypeFilter};
use outbox_tests::arbitrary::{SECRET, debug_text, error_text, samples};
use outbox_tests::{Fresh, TestDatabase, TestTable, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::foreign_values::{Change, Expected, ForeignValues, change, fixed};
use super::round_trip::{events, fields};
use super::seeds;
use crate::claim::all;
use crate::dead::dead_events;

/// Changes a row; returns false if the database refuses the change.
async fn apply<DB: ForeignValues>(
    db: &Fresh<DB>,
    store: &Store<DB>,
    row: i64,
    change: &Change,
) -> bool {
    let sql = format!("UPDATE {} SET {} WHERE sequence = ", store.table(), change.set);
    let Some(value) = change.value.clone() else {
        db.run(format!("{sql}{row}")).await;
        return true;
    };
    let sql = AssertSqlSafe(sql + DB::ROW_PLACEHOLDER).into_sql_str();
    let mut connection = db.pool.acquire().await.unwrap();
    DB::execute(&mut connection, sql, vec![value.into(), row.into()]).await.is_ok()
}

fn micros(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros().cast_signed(),
        Err(before) => -before.duration().as_micros().cast_signed(),
    }
}

/// Returns the value of a column as read by the claim.
fn column(row: &Claim, column: &str) -> Option<String> {
    let envelope = &row.envelope;
    match column {
        "event_id" => Some(envelope.event_id().to_string()),
        "event_type" => Some(envelope.event_type().to_owned()),
        "aggregate_type" => Some(envelope.aggregate_type().to_owned()),
        "aggregate_id" => envelope.aggregate_id().map(str::to_owned),
        "tenant_id" => envelope.tenant_id().map(str::to_owned),
        "payload" => Some(envelope.payload().as_str().to_owned()),
        "headers" => envelope.headers().to_json(),
        "created_at" => Some(micros(envelope.occurred_at()).to_string()),
        "attempts" => Some(row.attempts.to_string()),
        "takeovers" => Some(row.takeovers.to_string()),
        _ => None,
    }
}

const READ: [&str; 8] = [
    "event_id",
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "payload",
    "headers",
    "created_at",
];

async fn a_claim_succeeds_whatever_the_rows_contain<DB: TestDatabase + ForeignValues>(
    db: Fresh<DB>,
) {
    let store = db.store().await;
    let rows = (&db, &store);
    for seed in seeds() {
        let mut changes = fixed::<DB>();
        changes.extend(samples(seed, 300, change::<DB>()));
        let events = events(seed, changes.len() + 100);
        let inserted = rows.insert_due(&events).await;
        let mut damaged = HashMap::new();
        for (row, change) in inserted.iter().zip(changes) {
            if apply(&db, &store, row.sequence, &change).await {
                damaged.insert(row.sequence, change);
            }
        }
        let count_expected = |wanted: fn(&Expected) -> bool| {
            damaged.values().filter(|change| wanted(&change.expected)).count()
        };
        let unreadable = count_expected(|expected| matches!(expected, Expected::Unreadable(_)));
        let left = count_expected(|expected| *expected == Expected::NotClaimed);
        assert!(unreadable > 20 && damaged.len() > 150, "the database refused too many changes");

        let claimed = all(&store, "a").await;
        assert_eq!(claimed.undecodable.len(), unreadable);
        assert_eq!(claimed.rows.len(), inserted.len() - unreadable - left);
        for row in &claimed.undecodable {
            let change = &damaged[&row.sequence];
            assert_eq!(Expected::Unreadable(row.reason), change.expected, "{change:?}");
        }
        let originals: HashMap<i64, _> =
            inserted.iter().map(|row| row.sequence).zip(&events).collect();
        for row in &claimed.rows {
            let original = originals[&row.sequence];
            let Some(change) = damaged.get(&row.sequence) else {
                assert_eq!(fields(&row.envelope), fields(original), "an undamaged row");
                continue;
            };
            compare(row, change, original);
        }
        deliver(&claimed.rows).await;
        finish(&store, &claimed.rows, &claimed.undecodable).await;
        assert!(all(&store, "a").await.undecodable.is_empty(), "they are dead");

        // No other operation that reads these rows fails.
        store.peek(None, None).await.unwrap();
        store.stats(&TypeFilter::ALL).await.unwrap();
        let table = store.table();
        db.run(format!("UPDATE {table} SET status = 3")).await;
        let every = DeadFilter::default();
        let dead = dead_events(&store);
        assert_eq!(dead.query(&every, 1_000).await.unwrap().len(), inserted.len());
        dead.groups(&every).await.unwrap();
        assert_eq!(dead.replay_all(&every, 100).await.unwrap(), inserted.len() as u64);
        store.stats(&TypeFilter::ALL).await.unwrap();
        db.run(format!("DELETE FROM {table}")).await;
    }
}

/// Asserts that the changed column has the expected value, and that the others are unchanged.
fn compare(row: &Claim, change: &Change, original: &outbox::EventEnvelope) {
    let untouched = Claim { envelope: original.clone(), ..row.clone() };
    for name in READ.into_iter().filter(|name| *name != change.column) {
        assert_eq!(column(row, name), column(&untouched, name), "{name} after {change:?}");
    }
    let Expected::Reads(expected) = &change.expected else { panic!("{change:?} was read") };
    if expected.is_some() || READ.contains(&change.column) {
        assert_eq!(column(row, change.column), *expected, "{change:?}");
    }
}

/// Asserts that the error of a listener that can decode none of them shows no content. (Header keys are shown.)
async fn deliver(rows: &[Claim]) {
    #[derive(Debug, serde::Deserialize)]
    enum Nothing {}
    let listeners = ListenerRegistry::new()
        .register("A", |delivery: Delivery| async move { delivery.payload::<Nothing>().map(drop) })
        .build()
        .unwrap();
    let listener = listeners.find("__GLOBAL__", "A").unwrap();
    for row in rows {
        assert!(
            !debug_text(row).contains(SECRET)
                || debug_text(&row.envelope.headers()).contains(SECRET)
        );
        let answer: Result<_, ListenerError> = listener.call(row.envelope.clone(), 0).await;
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ListenerErrorKind::Decode);
        assert!(!error_text(&error).contains(SECRET), "{error}");
    }
}

/// Settles each row: as failed if it could be decoded, as dead otherwise.
async fn finish<DB: TestDatabase>(
    store: &Store<DB>,
    rows: &[Claim],
    undecodable: &[outbox_runtime::store::Undecodable],
) {
    let failed = rows.iter().map(|row| Settlement {
        sequence: row.sequence,
        token: row.token,
        verdict: Verdict::Retry {
            attempts: row.attempts.saturating_add(1),
            delay: Duration::from_secs(60),
            error: "x".to_owned(),
        },
        history: None,
    });
    let dead = undecodable.iter().map(|row| Settlement {
        sequence: row.sequence,
        token: row.token,
        verdict: Verdict::Dead { attempts: 0, error: row.reason.to_owned() },
        history: None,
    });
    let results: Vec<Settlement> = failed.chain(dead).collect();
    assert!(store.settle("a", &results, Completion::Keep).await.unwrap().is_empty());
}

on_every_database!(a_claim_succeeds_whatever_the_rows_contain);
