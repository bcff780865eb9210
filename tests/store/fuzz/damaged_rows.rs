//! Rows that somebody else has written, or damaged: a claim lives with all of them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox::{Delivery, ListenerError, ListenerErrorKind, ListenerRegistry};
use outbox_runtime::store::{
    Claim, Completion, DeadFilter, Settlement, Store, TypeFilter, Verdict,
};
use outbox_tests::arbitrary::{SECRET, samples, shown, told};
use outbox_tests::{Fresh, Rows, TestDatabase, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::foreign_values::{Change, Fate, Lenient, change, fixed};
use super::round_trip::{events, said};
use super::seeds;
use crate::claim::all;
use crate::dead::dead_events;

/// Changes a row, unless the database refuses; gives whether it did.
async fn apply<DB: Lenient>(db: &Fresh<DB>, store: &Store<DB>, row: i64, change: &Change) -> bool {
    let sql = format!("UPDATE {} SET {} WHERE sequence = ", store.table(), change.set);
    let Some(value) = change.value.clone() else {
        db.run(format!("{sql}{row}")).await;
        return true;
    };
    let sql = AssertSqlSafe(sql + DB::ROW).into_sql_str();
    let mut connection = db.pool.acquire().await.unwrap();
    DB::execute(&mut connection, sql, vec![value.into(), row.into()]).await.is_ok()
}

fn micros(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros().cast_signed(),
        Err(before) => -before.duration().as_micros().cast_signed(),
    }
}

/// What a column reads as.
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

async fn whatever_the_rows_hold_a_claim_goes_through<DB: TestDatabase + Lenient>(db: Fresh<DB>) {
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
        let fates = |wanted: fn(&Fate) -> bool| {
            damaged.values().filter(|change| wanted(&change.fate)).count()
        };
        let unreadable = fates(|fate| matches!(fate, Fate::Unreadable(_)));
        let left = fates(|fate| *fate == Fate::Left);
        assert!(unreadable > 20 && damaged.len() > 150, "the database refuses nearly everything");

        let claimed = all(&store, "a").await;
        assert_eq!(claimed.undecodable.len(), unreadable);
        assert_eq!(claimed.rows.len(), inserted.len() - unreadable - left);
        for row in &claimed.undecodable {
            let change = &damaged[&row.sequence];
            assert_eq!(Fate::Unreadable(row.reason), change.fate, "{change:?}");
        }
        let originals: HashMap<i64, _> =
            inserted.iter().map(|row| row.sequence).zip(&events).collect();
        for row in &claimed.rows {
            let original = originals[&row.sequence];
            let Some(change) = damaged.get(&row.sequence) else {
                assert_eq!(said(&row.envelope), said(original), "a sound row");
                continue;
            };
            compare(row, change, original);
        }
        deliver(&claimed.rows).await;
        finish(&store, &claimed.rows, &claimed.undecodable).await;
        assert!(all(&store, "a").await.undecodable.is_empty(), "they are dead");

        // Nothing else that reads these rows stumbles.
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

/// The changed column reads as it should, and the others as they were.
fn compare(row: &Claim, change: &Change, original: &outbox::EventEnvelope) {
    let untouched = Claim { envelope: original.clone(), ..row.clone() };
    for name in READ.into_iter().filter(|name| *name != change.column) {
        assert_eq!(column(row, name), column(&untouched, name), "{name} after {change:?}");
    }
    let Fate::Reads(expected) = &change.fate else { panic!("{change:?} was read") };
    if expected.is_some() || READ.contains(&change.column) {
        assert_eq!(column(row, change.column), *expected, "{change:?}");
    }
}

/// A listener that can read none of them says nothing of what was in them. (Keys of headers are shown.)
async fn deliver(rows: &[Claim]) {
    #[derive(Debug, serde::Deserialize)]
    enum Nothing {}
    let listeners = ListenerRegistry::new()
        .register("A", |delivery: Delivery| async move { delivery.payload::<Nothing>().map(drop) })
        .build()
        .unwrap();
    let listener = listeners.find("__GLOBAL__", "A").unwrap();
    for row in rows {
        assert!(!shown(row).contains(SECRET) || shown(&row.envelope.headers()).contains(SECRET));
        let answer: Result<_, ListenerError> = listener.call(row.envelope.clone(), 0).await;
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ListenerErrorKind::Decode);
        assert!(!told(&error).contains(SECRET), "{error}");
    }
}

/// Records a result for each: a failure for those that could be read, the end for the others.
async fn finish<DB: TestDatabase>(
    store: &Store<DB>,
    rows: &[Claim],
    undecodable: &[outbox_runtime::store::Undecodable],
) {
    let failed = rows.iter().map(|row| Settlement {
        sequence: row.sequence,
        token: row.token,
        result: Verdict::Retry {
            attempts: row.attempts.saturating_add(1),
            delay: Duration::from_secs(60),
            error: "x".to_owned(),
        },
    });
    let dead = undecodable.iter().map(|row| Settlement {
        sequence: row.sequence,
        token: row.token,
        result: Verdict::Dead { attempts: 0, error: row.reason.to_owned() },
    });
    let results: Vec<Settlement> = failed.chain(dead).collect();
    assert!(store.finish("a", &results, Completion::Keep).await.unwrap().is_empty());
}

on_every_database!(whatever_the_rows_hold_a_claim_goes_through);
