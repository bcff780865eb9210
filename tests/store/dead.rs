//! Dead letters.

use std::time::{Duration, SystemTime};

use outbox::{EventEnvelope, Status};
use outbox_runtime::store::{Completion, DeadFilter, Finish, Finished, Store};
use outbox_tests::{Fresh, Rows, TestDatabase, event, on_every_database};

use super::claim;
use super::finish::{dead, of};

/// Inserts events and lets them all die.
async fn bury<DB: TestDatabase>(db: &Fresh<DB>, store: &Store<DB>, events: &[EventEnvelope]) {
    (db, store).insert_due(events).await;
    let claimed = claim::all(store, "a").await.rows;
    let results: Vec<Finish> = claimed.iter().map(|row| of(row, dead(3, "broken"))).collect();
    assert!(store.finish("a", &results, Completion::Keep).await.unwrap().is_empty());
}

fn of_tenant(event_type: &str, tenant: &str, id: &str) -> EventEnvelope {
    EventEnvelope::builder(event_type)
        .aggregate_type("Order")
        .aggregate_id(id)
        .tenant(tenant)
        .payload_json("{}")
        .build()
        .unwrap()
}

async fn dead_events_are_listed_oldest_first<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    bury(&db, &store, &[event("A"), event("B"), event("C")]).await;
    (&db, &store).insert_due(&[event("Alive")]).await;
    let everything = DeadFilter::default();
    let found = store.dead(&everything, 0, 10).await.unwrap();
    let names: Vec<&str> = found.iter().map(|dead| dead.row.envelope.event_type()).collect();
    assert_eq!(names, ["A", "B", "C"]);
    assert_eq!(found[0].last_error.as_deref(), Some("broken"));
    assert_eq!(found[0].row.attempts, 3);
    let age = SystemTime::now().duration_since(found[0].died_at.unwrap()).unwrap_or_default();
    assert!(age < Duration::from_secs(60), "{age:?}");
    assert_eq!(store.count_dead(&everything).await.unwrap(), 3);
    let page = store.dead(&everything, found[0].row.sequence, 1).await.unwrap();
    assert_eq!(page[0].row.envelope.event_type(), "B");
}

async fn every_filter_narrows<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let global = EventEnvelope::json("A", "{}").unwrap();
    bury(
        &db,
        &store,
        &[
            of_tenant("A", "acme", "1"),
            of_tenant("B", "acme", "2"),
            of_tenant("B", "other", "2"),
            global,
        ],
    )
    .await;
    let count = async |filter: DeadFilter| store.count_dead(&filter).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let none = DeadFilter::default;
    assert_eq!(count(DeadFilter { event_type: text("B"), ..none() }).await, 2);
    assert_eq!(count(DeadFilter { aggregate_type: text("Order"), ..none() }).await, 3);
    assert_eq!(count(DeadFilter { aggregate_type: text("__GLOBAL__"), ..none() }).await, 1);
    assert_eq!(count(DeadFilter { aggregate_id: text("2"), ..none() }).await, 2);
    assert_eq!(count(DeadFilter { tenant_id: text("acme"), ..none() }).await, 2);
    let both = DeadFilter { tenant_id: text("acme"), event_type: text("B"), ..none() };
    assert_eq!(count(both).await, 1);
    let now = SystemTime::now();
    let hour = Duration::from_secs(3_600);
    assert_eq!(count(DeadFilter { since: Some(now + hour), ..none() }).await, 0);
    assert_eq!(count(DeadFilter { since: Some(now - hour), ..none() }).await, 4);
    assert_eq!(count(DeadFilter { before: Some(now - hour), ..none() }).await, 0);
    assert_eq!(count(DeadFilter { before: Some(now + hour), ..none() }).await, 4);
}

async fn replay_begins_anew<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let envelope = event("A");
    bury(&db, &store, std::slice::from_ref(&envelope)).await;
    let sequence = store.dead(&DeadFilter::default(), 0, 1).await.unwrap()[0].row.sequence;
    assert!(store.replay(envelope.event_id()).await.unwrap());
    let row = rows.row(sequence).await;
    assert_eq!((row.status, row.attempts, row.takeovers), (Status::New, 0, 0));
    assert_eq!((row.locked_by, row.last_error, row.ended), (None, None, false));
    assert_eq!(row.token, 2, "a late result of the old claim must not match");
    assert!(!store.replay(envelope.event_id()).await.unwrap(), "it is not dead any more");
    assert!(!store.replay(event("B").event_id()).await.unwrap(), "there is no such event");
    // The batch that buried it is sent again.
    let late = Finish { sequence, token: 1, result: dead(3, "broken") };
    assert_eq!(store.finish("a", &[late], Completion::Keep).await.unwrap(), [sequence]);
    assert_eq!(rows.row(sequence).await.status, Status::New);
    assert_eq!(claim::all(&store, "b").await.rows.len(), 1);
}

async fn replay_all_takes_what_is_dead_now<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let events: Vec<EventEnvelope> =
        (0..25).map(|index| event(if index % 5 == 0 { "A" } else { "B" })).collect();
    bury(&db, &store, &events).await;
    let done = {
        (&db, &store).insert_due(&[event("Done")]).await;
        claim::all(&store, "a").await.rows.remove(0)
    };
    store.finish("a", &[of(&done, Finished::Done)], Completion::Keep).await.unwrap();
    let only_a = DeadFilter { event_type: Some("A".to_owned()), ..DeadFilter::default() };
    assert_eq!(store.replay_all(&only_a, 2).await.unwrap(), 5);
    assert_eq!(store.replay_all(&DeadFilter::default(), 7).await.unwrap(), 20);
    assert_eq!(store.replay_all(&DeadFilter::default(), 7).await.unwrap(), 0);
    assert_eq!((&db, &store).row(done.sequence).await.status, Status::Done);
    assert_eq!(claim::all(&store, "a").await.rows.len(), 25);
}

async fn the_last_moment_that_can_be_stored_is_listed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_214_400);
    let event = EventEnvelope::builder("A").occurred_at(last).payload_json("{}").build().unwrap();
    bury(&db, &store, &[event]).await;
    let found = store.dead(&DeadFilter::default(), 0, 10).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].row.envelope.occurred_at(), last);
    assert_eq!(store.count_dead(&DeadFilter::default()).await.unwrap(), 1);
    assert_eq!(store.replay_all(&DeadFilter::default(), 10).await.unwrap(), 1);
}

on_every_database!(
    dead_events_are_listed_oldest_first,
    every_filter_narrows,
    replay_begins_anew,
    replay_all_takes_what_is_dead_now,
    the_last_moment_that_can_be_stored_is_listed,
);
