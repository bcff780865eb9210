//! Listing and inspecting rows.

use std::time::{Duration, SystemTime};

use outbox::EventEnvelope;
use outbox::event::Status;
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{
    Completion, DoctorOptions, EventFilter, EventQuery, FindingLevel, Payloads, Store,
};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, on_every_database};

use super::claim;
use super::settle::{dead, retry, settlement};

const HOUR: Duration = Duration::from_secs(3_600);

fn ids(rows: &[outbox::admin::EventRow]) -> Vec<&str> {
    rows.iter().map(|row| row.event_id.as_str()).collect()
}

async fn listed<DB: TestDatabase>(store: &Store<DB>, query: EventQuery) -> Vec<String> {
    ids(&store.list(&query).await.unwrap()).into_iter().map(str::to_owned).collect()
}

fn order(event_type: &str, id: &str) -> outbox::event::EnvelopeBuilder<outbox::event::Dynamic> {
    EventEnvelope::builder(event_type).event_id(id).payload_json(r#"{"b": 1}"#)
}

/// Inserts one new, one done, one retried and one dead event, with the status as their id.
async fn one_of_each<DB: TestDatabase>(db: &Fresh<DB>, store: &Store<DB>) {
    let events = [
        order("A", "done").aggregate_type("Order").aggregate_id("7").header("k", "v"),
        order("A", "retry").tenant("acme").occurred_at(SystemTime::now() - 2 * HOUR),
        order("B", "dead").aggregate_type("Order").aggregate_id("8"),
    ];
    (db, store).insert_due(&events.map(|event| event.build().unwrap())).await;
    let claimed = claim::all(store, "a").await.rows;
    let results = [
        settlement(&claimed[0], Verdict::Done),
        settlement(&claimed[1], retry(1, HOUR, "later")),
        settlement(&claimed[2], dead(3, "never")),
    ];
    assert!(store.settle("a", &results, Completion::Keep).await.unwrap().is_empty());
    (db, store).insert_due(&[order("B", "new").tenant("acme").build().unwrap()]).await;
}

async fn every_filter_narrows<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    one_of_each(&db, &store).await;
    let all = EventQuery::default;
    assert_eq!(listed(&store, all()).await, ["new", "dead", "retry", "done"]);
    for (status, id) in [
        (Status::New, "new"),
        (Status::Retry, "retry"),
        (Status::Done, "done"),
        (Status::Dead, "dead"),
    ] {
        let query = all().status(status);
        assert_eq!(listed(&store, query).await, [id]);
    }
    let recent = SystemTime::now() - HOUR;
    let filter = EventFilter::new;
    let cases: [(EventQuery, Vec<&str>); 9] = [
        (filter().event_type("B").into(), vec!["new", "dead"]),
        (filter().aggregate_type("Order").into(), vec!["dead", "done"]),
        (filter().aggregate_type("__GLOBAL__").into(), vec!["new", "retry"]),
        (filter().aggregate_id("8").into(), vec!["dead"]),
        (filter().tenant("acme").into(), vec!["new", "retry"]),
        (filter().since(recent).into(), vec!["new", "dead", "done"]),
        (filter().before(recent).into(), vec!["retry"]),
        (all().limit(2), vec!["new", "dead"]),
        (filter().tenant("unknown").into(), vec![]),
    ];
    for (query, expected) in cases {
        assert_eq!(listed(&store, query.clone()).await, expected, "{query:?}");
    }
    let first = store.list(&all().limit(2)).await.unwrap();
    let next = all().below(first[1].sequence);
    assert_eq!(listed(&store, next).await, ["retry", "done"]);
}

async fn a_row_is_returned_with_all_its_columns<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    one_of_each(&db, &store).await;
    let row = store.find_event("done").await.unwrap().remove(0);
    assert_eq!((row.event_type.as_str(), row.status, row.attempts), ("A", Status::Done, 0));
    assert_eq!((row.aggregate_type.as_str(), row.aggregate_id.as_deref()), ("Order", Some("7")));
    assert_eq!((row.claim_token, row.takeovers, row.locked_by), (1, 0, None));
    assert_eq!((row.payload_bytes, row.payload.as_deref()), (8, Some(r#"{"b": 1}"#)));
    assert_eq!(row.headers.as_deref(), Some(r#"{"k":"v"}"#));
    assert!(row.done_at.unwrap() >= row.created_at.unwrap());
    let row = store.find_event("dead").await.unwrap().remove(0);
    assert_eq!((row.last_error.as_deref(), row.attempts), (Some("never"), 3));
    assert!(store.find_event("unknown").await.unwrap().is_empty());
    let listed = store.list(&EventQuery::default()).await.unwrap();
    assert!(listed.iter().all(|row| row.payload.is_none() && row.payload_bytes == 8));
    let query = EventQuery::new().payloads(Payloads::Include);
    assert!(store.list(&query).await.unwrap().iter().all(|row| row.payload.is_some()));
}

/// The event is behind more rows than one statement reads.
async fn a_rare_event_is_found_behind_many_others<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    (&db, &store).insert_due(&[order("Rare", "rare").build().unwrap()]).await;
    let fill = DB::FILL
        .replace("{table}", "outbox_event")
        .replace("{type}", "A")
        .replace("{status}", "1")
        .replace("{from}", "1")
        .replace("{to}", "41000");
    db.run(fill).await;
    let rare = EventFilter::new().event_type("Rare").into();
    assert_eq!(listed(&store, rare).await, ["rare"]);
    let many = EventQuery::new().limit(40_500);
    assert_eq!(store.list(&many).await.unwrap().len(), 40_500);
}

async fn an_unreadable_row_is_omitted<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let events = ["one", "two", "three"].map(|id| order("A", id).build().unwrap());
    (&db, &store).insert_due(&events).await;
    db.run("UPDATE outbox_event SET status = 9 WHERE event_id = 'two'").await;
    assert_eq!(listed(&store, EventQuery::default()).await, ["three", "one"]);
    assert_eq!(ids(&store.follow(0, 10, Payloads::Omit).await.unwrap()), ["one", "three"]);
    assert!(store.find_event("two").await.unwrap().is_empty());
    assert_eq!(store.sequences(i64::MIN, i64::MAX, 10).await.unwrap().len(), 3);
}

async fn pending_rows_are_counted_by_type<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    one_of_each(&db, &store).await;
    let minute = Duration::from_secs(60);
    let types = store.pending_by_type(minute).await.unwrap();
    let counts: Vec<_> = types
        .iter()
        .map(|of_type| {
            (of_type.event_type.as_str(), of_type.pending, of_type.locked, of_type.overdue)
        })
        .collect();
    assert_eq!(counts, [("A", 1, 0, 0), ("B", 1, 0, 0)]);
    rows.insert_due(&[event("B"), event("B")]).await;
    assert_eq!(claim::all(&store, "gone").await.rows.len(), 3);
    rows.insert_due(&[event("B")]).await;
    rows.age(Duration::from_secs(100)).await;
    let types = store.pending_by_type(minute).await.unwrap();
    let of_b = types.iter().find(|of_type| of_type.event_type == "B").unwrap();
    assert_eq!((of_b.pending, of_b.locked, of_b.overdue, of_b.stuck), (4, 0, 4, 3));
    assert!((100..160).contains(&of_b.oldest.as_secs()), "{of_b:?}");
    let none = store.pending_by_type(HOUR).await.unwrap();
    assert!(none.iter().all(|of_type| of_type.overdue == 0 && of_type.stuck == 0), "{none:?}");
}

async fn settled_rows_are_counted_by_age<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    one_of_each(&db, &store).await;
    assert_eq!(store.recently_done(HOUR).await.unwrap(), 1);
    assert_eq!(store.count_old_done(HOUR).await.unwrap(), 0);
    assert_eq!(store.count_old_dead(HOUR).await.unwrap(), 0);
    assert_eq!(store.dead_by_type().await.unwrap(), [("B".to_owned(), 1)]);
    (&db, &store).age(2 * HOUR).await;
    assert_eq!(store.recently_done(HOUR).await.unwrap(), 0);
    assert_eq!(store.count_old_done(HOUR).await.unwrap(), 1);
    assert_eq!(store.count_old_dead(HOUR).await.unwrap(), 1);
}

/// Not on MySQL, which refuses such times.
async fn rows_with_unreadable_times_are_listed<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::SHORT_NAME == "mysql" {
        return;
    }
    let store = db.store().await;
    one_of_each(&db, &store).await;
    db.run("UPDATE outbox_event SET created_at = 'infinity', available_at = 'infinity'").await;
    let row = store.find_event("dead").await.unwrap().remove(0);
    assert_eq!((row.created_at, row.available_at), (None, None));
    assert_eq!((row.status, row.last_error.as_deref()), (Status::Dead, Some("never")));
    assert_eq!(listed(&store, EventQuery::default()).await.len(), 4);
}

/// A deployment check must not report success for event types it has not seen.
#[tokio::test]
async fn the_doctor_warns_if_it_cannot_check_all_event_types() {
    let db = Fresh::<sqlx::Sqlite>::new().await.expect("SQLite");
    let store = db.store().await;
    db.fill("Known", 0, 1, 100_000).await;
    let options = DoctorOptions::new().types(["Known"]).overdue(1_000 * HOUR);
    let levels = async || {
        let findings = store.doctor(&options).await.unwrap();
        let of_types = findings.iter().filter(|finding| finding.subject == "event types");
        of_types.map(|finding| finding.level).max()
    };
    assert_eq!(levels().await, Some(FindingLevel::Warning));
    db.run("DELETE FROM outbox_event WHERE event_id = 'e7'").await;
    assert_eq!(levels().await, Some(FindingLevel::Ok));
}

on_every_database!(
    rows_with_unreadable_times_are_listed,
    every_filter_narrows,
    a_row_is_returned_with_all_its_columns,
    a_rare_event_is_found_behind_many_others,
    an_unreadable_row_is_omitted,
    pending_rows_are_counted_by_type,
    settled_rows_are_counted_by_age,
);
