//! Inserting events.

use std::time::Duration;

use outbox::EventEnvelope;
use outbox::event::Status;
use outbox_runtime::event::Recipient;
use outbox_runtime::store::{InitialState, Inserted, NewRow};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, lease, on_every_database};

async fn an_inserted_row_is_new_and_due<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let [inserted] = rows.insert_due(&[event("Paid")]).await[..] else { panic!("one row") };
    assert!(!inserted.duplicate);
    let row = rows.row(inserted.sequence).await;
    assert_eq!(row.status, Status::New);
    assert_eq!((row.attempts, row.token, row.takeovers), (0, 0, 0));
    assert_eq!((row.locked_by, row.last_error, row.ended), (None, None, false));
}

async fn a_row_with_a_permit_is_claimed_at_insert<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let envelope = event("Paid");
    let mut connection = db.pool.acquire().await.unwrap();
    let row = NewRow {
        envelope: &envelope,
        state: InitialState::Claimed(lease("node")),
        recipient: &Recipient::Unnamed,
    };
    let inserted = store.insert(&mut connection, &[row]).await.unwrap();
    drop(connection);
    let row = rows.row(inserted[0].sequence).await;
    assert_eq!((row.token, row.locked_by.as_deref()), (1, Some("node")));
    assert!(super::claim::all(&store, "other").await.rows.is_empty(), "it is not due");
    rows.age(Duration::from_secs(31)).await;
    let claimed = super::claim::all(&store, "other").await;
    assert!(claimed.rows[0].taken_over, "its owner was lost");
}

/// MySQL inserts one row, eight and sixty-four with statements of their own, and any number of generated ids with
/// another one.
async fn a_row_can_be_inserted_as_done<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let mut connection = db.pool.acquire().await.unwrap();
    let generated = |_: usize| event("Paid");
    let chosen = |number: usize| {
        let id = EventEnvelope::builder("Paid").event_id(format!("my-{number}"));
        id.aggregate_type("Order").payload_json("{}").build().unwrap()
    };
    let batches = [1, 20].map(|count| (0..count).map(generated).collect::<Vec<_>>());
    let batches = batches.into_iter().chain([(0..73).map(chosen).collect()]);
    let (mut done, mut due, mut settled) = (0, 0, Vec::new());
    for events in batches {
        let state = |index: usize| match index % 2 {
            0 => InitialState::Done,
            _ => InitialState::Due,
        };
        let new: Vec<NewRow<'_>> = (0..)
            .zip(&events)
            .map(|(index, envelope)| NewRow {
                envelope,
                state: state(index),
                recipient: &Recipient::Unnamed,
            })
            .collect();
        let inserted = store.insert(&mut connection, &new).await.unwrap();
        due += new.len() / 2;
        done += new.len().div_ceil(2);
        settled.extend(inserted.iter().step_by(2).map(|row| row.sequence.to_string()));
        let settled = settled.join(", ");
        let unlocked = "claim_token = 0 AND attempts = 0 AND locked_by IS NULL";
        let as_expected = format!(
            "SELECT COUNT(*) FROM outbox_event WHERE {unlocked} \
             AND ((sequence IN ({settled}) AND status = 1 AND done_at IS NOT NULL) \
                OR (sequence NOT IN ({settled}) AND status = 0 AND done_at IS NULL))"
        );
        assert_eq!(db.number(as_expected).await, rows.count().await);
    }
    drop(connection);
    assert_eq!(super::claim::all(&store, "node").await.rows.len(), due);
    // It is done at the time of the statement, by the database's clock.
    rows.age(Duration::from_secs(60)).await;
    assert_eq!(store.purge_done(Duration::from_secs(90), None, 100).await.unwrap().deleted, 0);
    rows.age(Duration::from_secs(60)).await;
    let purged = store.purge_done(Duration::from_secs(90), None, 100).await.unwrap().deleted;
    assert_eq!(purged, done as u64);
}

async fn sequences_follow_the_insert_order<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let events: Vec<EventEnvelope> = (0..300).map(|_| event("Paid")).collect();
    let inserted = (&db, &store).insert_due(&events).await;
    assert!(inserted.is_sorted_by(|a, b| a.sequence < b.sequence));
    assert!(inserted.iter().all(|inserted| !inserted.duplicate));
}

async fn ten_thousand_events_are_inserted_at_once<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let events: Vec<EventEnvelope> = (0..10_000).map(|_| event("Paid")).collect();
    let inserted = (&db, &store).insert_due(&events).await;
    assert_eq!(inserted.len(), 10_000);
    assert_eq!((&db, &store).count().await, 10_000);
}

/// Headers and the escapes in payloads count towards the packet size, too: a server refuses a packet that is too
/// large by closing the connection.
async fn a_batch_of_large_events_is_inserted<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let (quotes, header) = (format!("\"{}\"", "\\\"".repeat(20_000)), "h".repeat(60_000));
    let large = |payload: &str, header: &str| {
        let event = EventEnvelope::builder("Large").header("header", header);
        event.payload_json(payload).build().unwrap()
    };
    let events: Vec<EventEnvelope> = (0..300).map(|_| large("{}", &header)).collect();
    (&db, &store).insert_due(&events).await;
    let events: Vec<EventEnvelope> = (0..210).map(|_| large(&quotes, "")).collect();
    (&db, &store).insert_due(&events).await;
    assert_eq!((&db, &store).count().await, 510);
}

async fn an_existing_id_adds_no_second_row<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let [first, second, third] = [event("Paid"), event("Paid"), event("Paid")];
    let committed = rows.insert_due(std::slice::from_ref(&second)).await;
    // Committed before, and twice in this batch.
    let batch = [first.clone(), second.clone(), third.clone(), first.clone(), second.clone()];
    let inserted = rows.insert_due(&batch).await;
    let duplicates: Vec<bool> = inserted.iter().map(|inserted| inserted.duplicate).collect();
    assert_eq!(duplicates, [false, true, false, true, true]);
    assert_eq!(inserted[1].sequence, committed[0].sequence);
    assert_eq!(inserted[4].sequence, committed[0].sequence);
    assert_eq!(inserted[3].sequence, inserted[0].sequence);
    assert_eq!(rows.count().await, 3);
}

async fn a_duplicate_id_leaves_the_transaction_usable<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let envelope = event("Paid");
    let row =
        NewRow { envelope: &envelope, state: InitialState::Due, recipient: &Recipient::Unnamed };
    let mut tx = db.pool.begin().await.unwrap();
    let first = store.insert(&mut tx, &[row]).await.unwrap();
    let second = store.insert(&mut tx, &[row]).await.unwrap();
    assert_eq!(second, [Inserted { sequence: first[0].sequence, duplicate: true }]);
    let other = event("Placed");
    let row = NewRow { envelope: &other, state: InitialState::Due, recipient: &Recipient::Unnamed };
    assert!(!store.insert(&mut tx, &[row]).await.unwrap()[0].duplicate);
    tx.commit().await.unwrap();
    assert_eq!((&db, &store).count().await, 2);
}

async fn rows_of_several_recipients_are_inserted_in_order_and_once<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let store = db.store().await;
    let events = [event("Paid"), event("Placed")];
    let named = |name: &str| Recipient::Named(name.into());
    let recipients = [Recipient::Unnamed, named("billing"), named("mail")];
    let rows: Vec<NewRow<'_>> = events
        .iter()
        .flat_map(|envelope| {
            let row = move |recipient| NewRow { envelope, recipient, state: InitialState::Due };
            recipients.iter().map(row)
        })
        .collect();
    let mut tx = db.pool.begin().await.unwrap();
    let inserted = store.insert(&mut tx, &rows).await.unwrap();
    assert!(inserted.iter().all(|inserted| !inserted.duplicate), "{inserted:?}");
    assert!(inserted.is_sorted_by_key(|inserted| inserted.sequence), "{inserted:?}");
    // All of them once more, and one alone: the ids were generated, but they are known by now.
    let known: Vec<Inserted> =
        inserted.iter().map(|inserted| Inserted { duplicate: true, ..*inserted }).collect();
    assert_eq!(store.insert(&mut tx, &rows).await.unwrap(), known);
    assert_eq!(store.insert(&mut tx, &rows[4..5]).await.unwrap(), known[4..5]);
    tx.commit().await.unwrap();
    for (row, inserted) in rows.iter().zip(&inserted) {
        let name = match row.recipient {
            Recipient::Named(name) => name,
            Recipient::Unnamed | Recipient::Unexpanded => "",
        };
        let id = row.envelope.event_id();
        let of_row = format!(
            "SELECT sequence FROM outbox_event \
             WHERE event_id = '{id}' AND subscription = '{name}' AND event_type = '{}'",
            row.envelope.event_type()
        );
        assert_eq!(db.number(of_row).await, inserted.sequence);
    }
    assert_eq!((&db, &store).count().await, 6);
}

async fn the_id_of_a_deleted_row_can_be_inserted_again<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let envelope = event("Paid");
    let first = rows.insert_due(std::slice::from_ref(&envelope)).await;
    db.run(format!("DELETE FROM {}", store.table())).await;
    let again = rows.insert_due(std::slice::from_ref(&envelope)).await;
    assert!(!again[0].duplicate);
    assert!(again[0].sequence > first[0].sequence, "a sequence is never used again");
}

async fn every_field_is_read_back_unchanged<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let written = EventEnvelope::builder("Grüße 🎉")
        .event_id("my-id")
        .aggregate_type("Bestellung")
        .aggregate_id("ä 'quoted\" \\ one")
        .tenant("acme")
        .header("k", "line\nbreak")
        .payload_json("  {\"z\":1.50,\"a\":\"\\u0041 'x' \\\\ 🎉\",\"z\":2}")
        .build()
        .unwrap();
    rows.insert_due(std::slice::from_ref(&written)).await;
    let claimed = super::claim::all(&store, "node").await;
    let read = &claimed.rows[0].envelope;
    assert_eq!(read.event_id(), written.event_id());
    assert_eq!(read.event_type(), written.event_type());
    assert_eq!(read.aggregate_type(), written.aggregate_type());
    assert_eq!(read.aggregate_id(), written.aggregate_id());
    assert_eq!(read.tenant_id(), written.tenant_id());
    assert_eq!(read.headers(), written.headers());
    assert_eq!(read.payload().as_str(), written.payload().as_str(), "to the byte");
    assert_eq!(read.occurred_at(), written.occurred_at(), "to the microsecond");
}

async fn a_payload_of_one_megabyte_is_stored<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let json = format!("\"{}\"", "\\\\\"".repeat(262_143));
    let json = &json[..json.len().min(outbox::event::MAX_PAYLOAD_BYTES)];
    let large = format!("\"{}\"", "ü".repeat(524_287));
    for payload in [large, json.to_owned()] {
        let Ok(envelope) = EventEnvelope::json("Large", payload) else { continue };
        (&db, &store).insert_due(std::slice::from_ref(&envelope)).await;
        let claimed = super::claim::all(&store, "node").await;
        assert_eq!(claimed.rows[0].envelope.payload(), envelope.payload());
    }
}

async fn a_delayed_event_is_not_due_before_its_time<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let hour = Duration::from_secs(3_600);
    let later = EventEnvelope::builder("Later").payload_json("{}").deliver_after(hour);
    let at = std::time::SystemTime::now() + hour;
    let until = EventEnvelope::builder("Until").payload_json("{}").deliver_at(at);
    rows.insert_due(&[later.build().unwrap(), until.build().unwrap()]).await;
    assert!(super::claim::all(&store, "node").await.rows.is_empty());
    rows.age(hour - Duration::from_secs(60)).await;
    assert!(super::claim::all(&store, "node").await.rows.is_empty());
    rows.age(Duration::from_secs(61)).await;
    assert_eq!(super::claim::all(&store, "node").await.rows.len(), 2);
}

on_every_database!(
    an_inserted_row_is_new_and_due,
    a_row_with_a_permit_is_claimed_at_insert,
    a_row_can_be_inserted_as_done,
    sequences_follow_the_insert_order,
    ten_thousand_events_are_inserted_at_once,
    a_batch_of_large_events_is_inserted,
    an_existing_id_adds_no_second_row,
    a_duplicate_id_leaves_the_transaction_usable,
    rows_of_several_recipients_are_inserted_in_order_and_once,
    the_id_of_a_deleted_row_can_be_inserted_again,
    every_field_is_read_back_unchanged,
    a_payload_of_one_megabyte_is_stored,
    a_delayed_event_is_not_due_before_its_time,
);
