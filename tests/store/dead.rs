//! Dead letters.

use std::future::poll_fn;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use futures_core::Stream;
use outbox::dead::{DeadEvents, Fingerprint};
use outbox::event::Status;
use outbox::{Error, EventEnvelope};
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, DeadFilter, EventFilter, Settlement, Store};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, eventually, on_every_database};

use super::claim;
use super::settle::{dead, settlement};

pub(super) fn dead_events<DB: TestDatabase>(store: &Store<DB>) -> DeadEvents<DB> {
    DeadEvents::new(store.pool().clone(), store.table().clone())
}

/// Inserts events and settles all of them as dead.
async fn insert_dead<DB: TestDatabase>(
    db: &Fresh<DB>,
    store: &Store<DB>,
    events: &[EventEnvelope],
) {
    insert_dead_with_errors(db, store, events, |_| "broken".to_owned()).await;
}

/// The same, with a separate error for each event.
async fn insert_dead_with_errors<DB: TestDatabase>(
    db: &Fresh<DB>,
    store: &Store<DB>,
    events: &[EventEnvelope],
    error: impl Fn(usize) -> String,
) {
    (db, store).insert_due(events).await;
    let mut settled = 0;
    while settled < events.len() {
        let claimed = claim::all(store, "a").await.rows;
        let one = |(index, row)| settlement(row, dead(3, &error(settled + index)));
        let results: Vec<Settlement> = claimed.iter().enumerate().map(one).collect();
        assert!(store.settle("a", &results, Completion::Keep).await.unwrap().is_empty());
        settled += claimed.len();
    }
}

fn event_of_tenant(event_type: &str, tenant: &str, id: &str) -> EventEnvelope {
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
    insert_dead(&db, &store, &[event("A"), event("B"), event("C")]).await;
    (&db, &store).insert_due(&[event("Alive")]).await;
    let everything = DeadFilter::default();
    let events = dead_events(&store);
    let found = events.query(&everything, 10).await.unwrap();
    let names: Vec<&str> = found.iter().map(|dead| dead.event_type.as_str()).collect();
    assert_eq!(names, ["A", "B", "C"]);
    assert_eq!(found[0].last_error.as_deref(), Some("broken"));
    assert_eq!(found[0].attempts, 3);
    assert_eq!(found[0].event.as_ref().unwrap().event_id().as_str(), found[0].event_id);
    let age = SystemTime::now().duration_since(found[0].died_at.unwrap()).unwrap_or_default();
    assert!(age < Duration::from_secs(60), "{age:?}");
    assert_eq!(events.count(&everything).await.unwrap(), 3);
    let first = events.query(&everything, 1).await.unwrap();
    assert_eq!(first.len(), 1);
    assert_eq!(events.find(&first[0].event_id).await.unwrap().unwrap().event_type, "A");
    assert!(events.find("unknown").await.unwrap().is_none());
}

async fn every_filter_narrows<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let global = EventEnvelope::json("A", "{}").unwrap();
    insert_dead(
        &db,
        &store,
        &[
            event_of_tenant("A", "acme", "1"),
            event_of_tenant("B", "acme", "2"),
            event_of_tenant("B", "other", "2"),
            global,
        ],
    )
    .await;
    let events = dead_events(&store);
    let count = async |filter: EventFilter| events.count(&filter.into()).await.unwrap();
    let all = EventFilter::new;
    assert_eq!(count(all().event_type("B")).await, 2);
    assert_eq!(count(all().aggregate_type("Order")).await, 3);
    assert_eq!(count(all().aggregate_type("__GLOBAL__")).await, 1);
    assert_eq!(count(all().aggregate_id("2")).await, 2);
    assert_eq!(count(all().tenant("acme")).await, 2);
    let both = all().tenant("acme").event_type("B");
    assert_eq!(count(both).await, 1);
    let now = SystemTime::now();
    let hour = Duration::from_secs(3_600);
    assert_eq!(count(all().since(now + hour)).await, 0);
    assert_eq!(count(all().since(now - hour)).await, 4);
    assert_eq!(count(all().before(now - hour)).await, 0);
    assert_eq!(count(all().before(now + hour)).await, 4);
    // No database can store these times; neither filter may match everything.
    let age = Duration::from_secs(5_000 * 365 * 24 * 3_600);
    assert_eq!(count(all().before(now - age)).await, 0);
    assert_eq!(count(all().since(now + age * 4)).await, 0);
}

async fn replay_resets_the_event<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let envelope = event("A");
    insert_dead(&db, &store, std::slice::from_ref(&envelope)).await;
    let events = dead_events(&store);
    let sequence = events.query(&DeadFilter::default(), 1).await.unwrap()[0].sequence;
    events.replay(envelope.event_id()).await.unwrap();
    let row = rows.row(sequence).await;
    assert_eq!((row.status, row.attempts, row.takeovers), (Status::New, 0, 0));
    assert_eq!((row.locked_by, row.last_error, row.ended), (None, None, false));
    assert_eq!(row.token, 2, "a late settlement of the old claim must not match");
    let again = events.replay(envelope.event_id()).await.unwrap_err();
    assert!(matches!(again, Error::NotDead { status: Status::New, .. }), "{again}");
    let unknown = events.replay("unknown").await.unwrap_err().to_string();
    let expected =
        "table `outbox_event` has no event with the id `unknown`; it may have been purged";
    assert_eq!(unknown, expected);
    // The batch that settled it as dead is sent again.
    let late = Settlement { sequence, token: 1, verdict: dead(3, "broken"), history: None };
    assert_eq!(store.settle("a", &[late], Completion::Keep).await.unwrap().stale, [sequence]);
    assert_eq!(rows.row(sequence).await.status, Status::New);
    assert_eq!(claim::all(&store, "b").await.rows.len(), 1);
}

async fn replay_all_replays_every_matching_dead_event<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let events: Vec<EventEnvelope> =
        (0..25).map(|index| event(if index % 5 == 0 { "A" } else { "B" })).collect();
    insert_dead(&db, &store, &events).await;
    let done = {
        (&db, &store).insert_due(&[event("Done")]).await;
        claim::all(&store, "a").await.rows.remove(0)
    };
    store.settle("a", &[settlement(&done, Verdict::Done)], Completion::Keep).await.unwrap();
    let only_a = DeadFilter::new().event_type("A");
    let events = dead_events(&store);
    assert_eq!(events.replay_all(&only_a, 2).await.unwrap(), 5);
    assert_eq!(events.replay_all(&DeadFilter::default(), 7).await.unwrap(), 20);
    assert_eq!(events.replay_all(&DeadFilter::default(), 7).await.unwrap(), 0);
    assert_eq!((&db, &store).row(done.sequence).await.status, Status::Done);
    assert_eq!(claim::all(&store, "a").await.rows.len(), 25);
}

async fn a_batch_size_of_zero_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    insert_dead(&db, &store, &[event("A")]).await;
    let events = dead_events(&store);
    let refused = events.replay_all(&DeadFilter::default(), 0).await.map_err(|e| e.to_string());
    assert_eq!(refused, Err("the batch size must be at least 1".to_owned()));
    let refused = events.replaying(&DeadFilter::default(), 0).await.map(drop);
    assert!(matches!(refused, Err(Error::BatchSizeZero)), "{refused:?}");
    assert_eq!(events.count(&DeadFilter::default()).await.unwrap(), 1, "it is still dead");
}

async fn an_event_with_the_latest_storable_time_is_listed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_214_400);
    let event = EventEnvelope::builder("A").occurred_at(last).payload_json("{}").build().unwrap();
    insert_dead(&db, &store, &[event]).await;
    let events = dead_events(&store);
    let found = events.query(&DeadFilter::default(), 10).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].event.as_ref().unwrap().occurred_at(), last);
    assert_eq!(events.count(&DeadFilter::default()).await.unwrap(), 1);
    assert_eq!(events.replay_all(&DeadFilter::default(), 10).await.unwrap(), 1);
}

async fn discarding_requires_a_reason_and_deletes_the_event<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let envelopes = [event("A"), event("B"), event("C"), event("C")];
    insert_dead(&db, &store, &envelopes).await;
    let events = dead_events(&store);
    let first = envelopes[0].event_id();
    for reason in ["", "  \n"] {
        let refused = events.discard(first, reason).await.unwrap_err();
        assert!(matches!(refused, Error::NoReason), "{refused}");
    }
    assert_eq!(events.count(&DeadFilter::default()).await.unwrap(), 4, "nothing was deleted");
    events.discard(first, "the customer left").await.unwrap();
    let again = events.discard(first, "the customer left").await.unwrap_err();
    assert!(matches!(again, Error::NoSuchEvent { .. }), "{again}");
    events.replay(envelopes[1].event_id()).await.unwrap();
    let alive = events.discard(envelopes[1].event_id(), "why not").await.unwrap_err();
    assert!(matches!(alive, Error::NotDead { status: Status::New, .. }), "{alive}");
    let all = DeadFilter::default();
    assert_eq!(events.discard_all(&all, "a rehearsal").await.unwrap(), 2);
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event").await, 1);
}

async fn dead_events_are_grouped_by_error<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let name = |index| if index < 4 { "A" } else { "B" };
    let envelopes: Vec<EventEnvelope> = (0..7).map(|index| event(name(index))).collect();
    let error = |index| match index {
        0..3 => format!("order {index} is gone"),
        3 => "refused".to_owned(),
        _ => format!("no answer after {index}s"),
    };
    insert_dead_with_errors(&db, &store, &envelopes, error).await;
    let events = dead_events(&store);
    let groups = events.groups(&DeadFilter::default()).await.unwrap();
    let grouped: Vec<(&str, &str, u64)> = groups
        .iter()
        .map(|group| (group.event_type.as_str(), group.error.as_str(), group.count))
        .collect();
    let expected =
        [("A", "order # is gone", 3), ("B", "no answer after #", 3), ("A", "refused", 1)];
    assert_eq!(grouped, expected);
    assert!(groups[0].first_at <= groups[0].last_at && groups[0].first_at.is_some());
    let gone = DeadFilter::new().fingerprint(Fingerprint::new("order 99 is gone"));
    assert_eq!(gone.fingerprint, groups[0].fingerprint);
    assert_eq!(events.count(&gone).await.unwrap(), 3);
    assert_eq!(events.query(&gone, 2).await.unwrap().len(), 2);
    // The page size is smaller than the distance between two matching events.
    assert_eq!(events.replay_all(&gone, 1).await.unwrap(), 3);
    assert_eq!(events.count(&DeadFilter::default()).await.unwrap(), 4);
}

async fn dead_events_are_streamed_in_pages<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let envelopes: Vec<EventEnvelope> = (0..121).map(|_| event("A")).collect();
    insert_dead(&db, &store, &envelopes).await;
    let mut stream = pin!(dead_events(&store).stream(DeadFilter::default()));
    let mut last = 0;
    for _ in &envelopes {
        let dead = poll_fn(|context| stream.as_mut().poll_next(context)).await.unwrap().unwrap();
        assert!(dead.sequence > last);
        last = dead.sequence;
    }
    assert!(poll_fn(|context| stream.as_mut().poll_next(context)).await.is_none());
}

async fn an_undecodable_dead_row_is_listed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    insert_dead(&db, &store, &[event("A"), event("B")]).await;
    db.run("UPDATE outbox_event SET headers = '[1]' WHERE event_type = 'A'").await;
    let found = dead_events(&store).query(&DeadFilter::default(), 10).await.unwrap();
    assert_eq!(found.len(), 2);
    let undecodable = found[0].event.as_ref().unwrap_err();
    assert_eq!(undecodable.reason, "the headers are not a JSON object of strings");
    let message = format!("row {} cannot be decoded: {}", found[0].sequence, undecodable.reason);
    let error: &dyn std::error::Error = undecodable;
    assert_eq!(error.to_string(), message);
    assert_eq!((found[0].event_type.as_str(), found[0].attempts), ("A", 3));
}

/// Also if its row is older: the operator has not seen the event, and did not approve its deletion.
async fn a_bulk_discard_skips_events_that_die_after_it_starts<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    insert_dead(&db, &store, &[event("A")]).await;
    let late = event("Late");
    (&db, &store).insert_due(std::slice::from_ref(&late)).await;
    insert_dead_after_pending(&db, &store).await;
    let events = dead_events(&store);
    let mut bulk = events.discarding(&DeadFilter::default(), "a rehearsal").await.unwrap();
    // Not in the same millisecond, which is the resolution of SQLite.
    let begun = store.now().await.unwrap();
    eventually("time passes", async || store.now().await.unwrap() > begun).await;
    let claimed = claim::all(&store, "a").await.rows;
    let died: Vec<Settlement> = claimed.iter().map(|row| settlement(row, dead(3, "new"))).collect();
    store.settle("a", &died, Completion::Keep).await.unwrap();
    while bulk.next().await.unwrap().is_some() {}
    assert_eq!(bulk.done(), 2);
    assert_eq!(events.query(&DeadFilter::default(), 10).await.unwrap()[0].event_type, "Late");
}

/// Inserts a dead event after the pending ones.
async fn insert_dead_after_pending<DB: TestDatabase>(db: &Fresh<DB>, store: &Store<DB>) {
    let inserted = (db, store).insert_due(&[event("B")]).await;
    let (now, last) = (DB::NOW, inserted[0].sequence);
    let set = format!("status = 3, done_at = {now}, last_error = 'broken'");
    db.run(format!("UPDATE outbox_event SET {set} WHERE sequence = {last}")).await;
}

/// The table disappears between two batches, and comes back.
async fn an_interrupted_replay_all_reports_progress_and_resumes<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let envelopes: Vec<EventEnvelope> = (0..20).map(|_| event("A")).collect();
    insert_dead(&db, &store, &envelopes).await;
    let events = dead_events(&store);
    let mut bulk = events.replaying(&DeadFilter::default(), 4).await.unwrap();
    assert_eq!(bulk.next().await.unwrap(), Some(4));
    db.run("ALTER TABLE outbox_event RENAME TO elsewhere").await;
    let error = bulk.next().await.unwrap_err();
    assert!(matches!(error, Error::Interrupted { done: 4, .. }), "{error}");
    assert_eq!(error.to_string(), "stopped after 4 events; call it again to continue");
    db.run("ALTER TABLE elsewhere RENAME TO outbox_event").await;
    assert_eq!(bulk.next().await.unwrap(), Some(4), "the same operation resumes");
    // A new one continues with the remaining events.
    assert_eq!(events.replay_all(&DeadFilter::default(), 5).await.unwrap(), 12);
    assert_eq!(claim::all(&store, "b").await.rows.len(), 20);
}

on_every_database!(
    dead_events_are_listed_oldest_first,
    every_filter_narrows,
    replay_resets_the_event,
    replay_all_replays_every_matching_dead_event,
    a_batch_size_of_zero_is_refused,
    an_event_with_the_latest_storable_time_is_listed,
    discarding_requires_a_reason_and_deletes_the_event,
    dead_events_are_grouped_by_error,
    dead_events_are_streamed_in_pages,
    an_undecodable_dead_row_is_listed,
    an_interrupted_replay_all_reports_progress_and_resumes,
    a_bulk_discard_skips_events_that_die_after_it_starts,
);
