//! What people can do to a single pending event: discard it, end its claim, make it due.

use std::time::Duration;

use outbox::admin::{Admin, Table};
use outbox::event::Status;
use outbox::{Error, EventEnvelope};
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, Store};
use outbox_tests::{Fresh, TestDatabase, TestTable, on_every_database};

use super::claim;
use super::settle::{dead, retry, settlement};

const MINUTE: Duration = Duration::from_secs(60);

fn admin<DB: TestDatabase>(db: &Fresh<DB>) -> Admin<DB> {
    Admin::new(db.pool.clone(), Table::default())
}

fn event(id: &str) -> EventEnvelope {
    EventEnvelope::builder("Paid").event_id(id).payload_json("{}").build().unwrap()
}

async fn insert<DB: TestDatabase>(db: &Fresh<DB>, store: &Store<DB>, id: &str) -> i64 {
    (db, store).insert_due(&[event(id)]).await[0].sequence
}

async fn a_released_event_is_due_and_the_result_of_its_owner_is_stale<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let store = db.store().await;
    let sequence = insert(&db, &store, "one").await;
    let hung = claim::all(&store, "hung").await.rows.remove(0);
    admin(&db).release("one").await.unwrap();
    let row = (&db, &store).row(sequence).await;
    assert_eq!((row.status, row.attempts, row.locked_by), (Status::New, 0, None));

    let late = [settlement(&hung, dead(9, "late"))];
    let unsettled = store.settle("hung", &late, Completion::Keep).await.unwrap();
    assert_eq!(unsettled.stale, [sequence], "before the next claim as well");
    let next = claim::all(&store, "other").await.rows.remove(0);
    assert_eq!((next.sequence, next.taken_over), (sequence, false), "no owner was lost");
    let unsettled = store.settle("hung", &late, Completion::Keep).await.unwrap();
    assert_eq!(unsettled.stale, [sequence]);
    let done = [settlement(&next, Verdict::Done)];
    assert!(store.settle("other", &done, Completion::Keep).await.unwrap().is_empty());
    assert_eq!((&db, &store).row(sequence).await.status, Status::Done);
}

async fn an_event_that_waits_is_made_due<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let sequence = insert(&db, &store, "one").await;
    let failed = claim::all(&store, "a").await.rows.remove(0);
    let failed = [settlement(&failed, retry(1, MINUTE, "down"))];
    assert!(store.settle("a", &failed, Completion::Keep).await.unwrap().is_empty());
    assert_eq!(claim::all(&store, "a").await.rows.len(), 0);

    admin(&db).make_due("one").await.unwrap();
    let again = claim::all(&store, "a").await.rows.remove(0);
    assert_eq!((again.sequence, again.attempts), (sequence, 1));
}

async fn a_due_event_keeps_its_place<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let first = insert(&db, &store, "first").await;
    (&db, &store).age(MINUTE).await;
    let second = insert(&db, &store, "second").await;
    admin(&db).make_due("first").await.unwrap();
    let rows = claim::all(&store, "a").await.rows;
    let order: Vec<i64> = rows.iter().map(|row| row.sequence).collect();
    assert_eq!(order, [first, second]);
}

async fn a_discarded_event_is_gone<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    insert(&db, &store, "waiting").await;
    admin(&db).discard("waiting", "a test event").await.unwrap();
    assert_eq!((&db, &store).count().await, 0);

    // It is being delivered: the result comes too late.
    insert(&db, &store, "running").await;
    let running = claim::all(&store, "a").await.rows.remove(0);
    admin(&db).discard("running", "a test event").await.unwrap();
    let done = [settlement(&running, Verdict::Done)];
    let unsettled = store.settle("a", &done, Completion::Keep).await.unwrap();
    assert_eq!((unsettled.stale, (&db, &store).count().await), (vec![running.sequence], 0));
}

async fn every_refusal_names_its_reason<DB: TestDatabase>(db: Fresh<DB>) {
    let (store, admin) = (db.store().await, admin(&db));
    for id in ["done", "dead", "claimed"] {
        insert(&db, &store, id).await;
    }
    let rows = claim::all(&store, "owner").await.rows;
    let of = |id: &str| rows.iter().find(|row| row.envelope.event_id().as_str() == id).unwrap();
    let results = [settlement(of("done"), Verdict::Done), settlement(of("dead"), dead(1, "x"))];
    assert!(store.settle("owner", &results, Completion::Keep).await.unwrap().is_empty());
    insert(&db, &store, "waiting").await;

    for (id, status) in [("done", Status::Done), ("dead", Status::Dead)] {
        for refused in [
            admin.release(id).await.unwrap_err(),
            admin.make_due(id).await.unwrap_err(),
            admin.discard(id, "test").await.unwrap_err(),
        ] {
            let expected = matches!(&refused, Error::NotPending { event_id, status: is }
                if event_id == id && *is == status);
            assert!(expected, "{refused}");
        }
    }
    let claimed = admin.make_due("claimed").await.unwrap_err();
    assert!(matches!(&claimed, Error::Claimed { owner, .. } if owner == "owner"), "{claimed}");
    let waiting = admin.release("waiting").await.unwrap_err();
    assert!(matches!(waiting, Error::NotClaimed { .. }), "{waiting}");
    assert!(matches!(admin.discard("waiting", " ").await.unwrap_err(), Error::NoReason));
    for missing in [
        admin.release("missing").await.unwrap_err(),
        admin.make_due("missing").await.unwrap_err(),
        admin.discard("missing", "test").await.unwrap_err(),
    ] {
        assert!(matches!(missing, Error::NoSuchEvent { .. }), "{missing}");
    }
    assert_eq!((&db, &store).count().await, 4, "nothing was deleted");
}

on_every_database!(
    a_released_event_is_due_and_the_result_of_its_owner_is_stale,
    an_event_that_waits_is_made_due,
    a_due_event_keeps_its_place,
    a_discarded_event_is_gone,
    every_refusal_names_its_reason,
);
