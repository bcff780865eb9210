//! Purging, and rows that somebody else has inserted.

use std::time::Duration;

use outbox::EventEnvelope;
use outbox_runtime::store::{Completion, Finish, Finished};
use outbox_tests::{Fresh, Rows, TestDatabase, event, on_every_database};

use super::claim;
use super::finish::{dead, of};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn only_what_ended_long_ago_goes<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("Done"), event("Dead")]).await;
    let claimed = claim::all(&store, "a").await.rows;
    let results = [of(&claimed[0], Finished::Done), of(&claimed[1], dead(1, "x"))];
    store.finish("a", &results, Completion::Keep).await.unwrap();
    rows.insert_due(&[event("Pending")]).await;
    assert_eq!(store.purge_done(DAY, 100).await.unwrap(), 0);
    rows.age(DAY * 2).await;
    assert_eq!(store.purge_done(DAY * 3, 100).await.unwrap(), 0);
    assert_eq!(store.purge_done(DAY, 100).await.unwrap(), 1);
    assert_eq!(rows.count().await, 2, "what is pending or dead stays");
    assert_eq!(store.purge_dead(DAY, 100).await.unwrap(), 1);
    assert_eq!(rows.count().await, 1, "what is pending stays, however old");
    assert_eq!(store.purge_any(DAY * 3, 100).await.unwrap(), 0);
    assert_eq!(store.purge_any(DAY, 100).await.unwrap(), 1);
    assert_eq!(store.purge_any(DAY, 100).await.unwrap(), 0, "nothing is left");
}

async fn a_batch_is_as_large_as_asked<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let events: Vec<EventEnvelope> = (0..25).map(|_| event("Done")).collect();
    rows.insert_due(&events).await;
    let claimed = claim::all(&store, "a").await.rows;
    let results: Vec<Finish> = claimed.iter().map(|row| of(row, Finished::Done)).collect();
    store.finish("a", &results, Completion::Keep).await.unwrap();
    rows.age(DAY * 2).await;
    let mut batches = Vec::new();
    while batches.last() != Some(&0) {
        batches.push(store.purge_done(DAY, 10).await.unwrap());
    }
    assert_eq!(batches, [10, 10, 5, 0]);
}

async fn a_row_without_an_end_goes_by_its_creation<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("B")]).await;
    let table = store.table();
    db.run(format!("UPDATE {table} SET status = 1, done_at = NULL")).await;
    rows.age(DAY * 2).await;
    rows.insert_due(&[event("C")]).await;
    db.run(format!("UPDATE {table} SET status = 1, done_at = NULL")).await;
    assert_eq!(store.purge_done(DAY, 100).await.unwrap(), 2);
    assert_eq!(rows.count().await, 1);
}

/// The INSERT of a program in another language that names the columns it knows.
async fn a_row_of_another_program_is_delivered<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let now = DB::NOW;
    db.run(format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, \
         payload, headers, status, attempts, available_at, created_at) VALUES \
         ('01H', 'UserCreated', NULL, NULL, NULL, '{{\"name\": \"Ada\"}}', NULL, 0, 0, {now}, {now})"
    ))
    .await;
    let known = store.subscribe([("__GLOBAL__", "UserCreated")]);
    let claimed = store.claim(claim::request("a", &known)).await.unwrap().rows;
    assert_eq!(claimed[0].envelope.payload().as_str(), r#"{"name": "Ada"}"#);
    let done = [of(&claimed[0], Finished::Done)];
    assert!(store.finish("a", &done, Completion::Keep).await.unwrap().is_empty());
    rows.age(DAY * 8).await;
    assert_eq!(store.purge_done(DAY * 7, 500).await.unwrap(), 1);
}

on_every_database!(
    only_what_ended_long_ago_goes,
    a_batch_is_as_large_as_asked,
    a_row_without_an_end_goes_by_its_creation,
    a_row_of_another_program_is_delivered,
);
