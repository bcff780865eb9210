//! Writing events that need no listener, without a relay that could settle them later.

use std::time::Duration;

use outbox::event::Status;
use outbox::{EventEnvelope, EventType};
use outbox_runtime::store::StoreOf;
use outbox_runtime::write::WriteOutcome;
use outbox_tests::{Fresh, TestDatabase, TestTable, WriterProbe, event, on_every_database};

use super::claim;
use super::write::writer;

/// It names no aggregate.
#[derive(EventType, Clone)]
enum Sighting {
    #[outbox(no_listener, alias = "SightingKept")]
    SightingStored,
    /// Declared below once more.
    #[outbox(no_listener)]
    SightingContested,
}

#[derive(EventType)]
enum OtherSighting {
    SightingContested,
}

/// Returns the status of the rows, in the order of their insertion.
async fn statuses<DB: TestDatabase>(db: &Fresh<DB>) -> Vec<Status> {
    let sql = "SELECT CAST(status AS CHAR(1)) FROM outbox_event ORDER BY sequence";
    let rows: Vec<[String; 1]> = db.texts(sql).await;
    let status = |[code]: &[String; 1]| Status::from_code(code.parse().unwrap()).unwrap();
    rows.iter().map(status).collect()
}

async fn a_commit_settles_the_event_and_wakes_no_poller<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let mut tx = writer.begin().await.unwrap();
    tx.write(Sighting::SightingStored).unwrap();
    let later = outbox::event(Sighting::SightingStored).deliver_after(Duration::from_secs(60));
    tx.write(later).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(statuses(&db).await, [Status::Done; 2]);
    assert_eq!((probe.hot().len(), probe.free()), (0, 9), "it takes no permit");
    assert!(!probe.has_woken_poller());
    assert!(probe.hook_calls().contains(&"after_commit SightingStored,SightingStored".to_owned()));
    // Beside another event, each gets what is its own.
    let mut tx = writer.begin().await.unwrap();
    tx.write(Sighting::SightingStored).unwrap();
    tx.write(event("A")).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(statuses(&db).await, [Status::Done, Status::Done, Status::Done, Status::New]);
    assert_eq!((probe.hot().len(), probe.free()), (1, 8));
}

async fn a_flushed_event_is_new_once<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 9).await;
    let stored = outbox::event(Sighting::SightingStored).event_id("seen-1").build().unwrap();
    let mut tx = writer.begin().await.unwrap();
    tx.write(stored.clone()).unwrap();
    let first = tx.flush().await.unwrap()[0];
    assert_eq!(first.outcome, WriteOutcome::Inserted);
    tx.write(stored.clone()).unwrap();
    let second = tx.flush().await.unwrap()[0];
    assert_eq!((second.outcome, second.sequence), (WriteOutcome::Duplicate, first.sequence));
    tx.commit().await.unwrap();
    let mut tx = writer.begin().await.unwrap();
    tx.write(stored).unwrap();
    assert_eq!(tx.flush().await.unwrap()[0].outcome, WriteOutcome::Duplicate);
    tx.commit().await.unwrap();
    assert_eq!(statuses(&db).await, [Status::Done]);
    // The id of a pending row is a duplicate as well, and its row stays as it is.
    let pending = EventEnvelope::builder("A").event_id("seen-2").payload_json("{}");
    (&db, writer.store()).insert_due(&[pending.build().unwrap()]).await;
    let mut tx = writer.begin().await.unwrap();
    tx.write(outbox::event(Sighting::SightingStored).event_id("seen-2")).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(statuses(&db).await, [Status::Done, Status::New]);
}

async fn a_rolled_back_event_leaves_no_row<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 9).await;
    let mut tx = writer.begin().await.unwrap();
    tx.write(Sighting::SightingStored).unwrap();
    tx.flush().await.unwrap();
    tx.rollback().await.unwrap();
    assert!(statuses(&db).await.is_empty());
}

async fn an_event_in_a_foreign_transaction_is_settled<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, Sighting::SightingStored).await.unwrap().unwrap();
    assert!(receipt.is_new());
    tx.commit().await.unwrap();
    writer.committed(receipt).await.unwrap();
    assert_eq!(statuses(&db).await, [Status::Done]);
    assert_eq!((probe.hot().len(), probe.free()), (0, 9));
    assert!(!probe.has_woken_poller());
    assert!(probe.hook_calls().contains(&"after_commit SightingStored".to_owned()));
    // Without a permit, another event would be left to the poller.
    let (writer, probe) = WriterProbe::writer(db.pool.clone(), 0);
    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, Sighting::SightingStored).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    writer.committed(receipt).await.unwrap();
    assert!(!probe.has_woken_poller());
}

/// A name alone is less than a type: it may belong to the events of another aggregate, or of another type.
async fn an_event_is_matched_by_its_type_or_by_both_names<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    let named = |name: &str, aggregate: &str| {
        EventEnvelope::builder(name).aggregate_type(aggregate).payload_json("{}").build().unwrap()
    };
    let typed = |event: Sighting| outbox::event(event).aggregate_type("Order").build().unwrap();
    for (event, expected) in [
        (named("SightingStored", "__GLOBAL__"), Status::Done),
        (named("SightingKept", "__GLOBAL__"), Status::Done),
        (named("SightingStored", "Order"), Status::New),
        (named("sightingstored", "__GLOBAL__"), Status::New),
        (named("SightingContested", "__GLOBAL__"), Status::New),
        (typed(Sighting::SightingStored), Status::Done),
        (typed(Sighting::SightingContested), Status::Done),
    ] {
        let described = format!("{event:?}");
        let mut tx = writer.begin().await.unwrap();
        tx.write(event).unwrap();
        tx.commit().await.unwrap();
        assert_eq!(statuses(&db).await.last(), Some(&expected), "{described}");
    }
    let mut tx = writer.begin().await.unwrap();
    tx.write(OtherSighting::SightingContested).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(statuses(&db).await.last(), Some(&Status::New), "its type wants a listener");
    let claimed = claim::all(writer.store(), "node").await.rows;
    assert_eq!(claimed.len(), 4);
}

on_every_database!(
    a_commit_settles_the_event_and_wakes_no_poller,
    a_flushed_event_is_new_once,
    a_rolled_back_event_leaves_no_row,
    an_event_in_a_foreign_transaction_is_settled,
    an_event_is_matched_by_its_type_or_by_both_names,
);
