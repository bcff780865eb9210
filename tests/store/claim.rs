//! Claiming and renewing.

use std::time::Duration;

use outbox::EventEnvelope;
use outbox::event::Status;
use outbox_runtime::event::{Recipient, Verdict};
use outbox_runtime::store::{
    Completion, InitialState, Lease, NewRow, Position, Quota, Renewal, Settlement, Store, Table,
    TypeFilter,
};
use outbox_tests::{
    Fresh, Round, RoundClaims, TestDatabase, TestTable, event, every_unnamed, lease,
    on_every_database, unnamed,
};

/// Returns a claim request with default limits.
pub(crate) fn request<'a>(owner: &'a str, types: &'a TypeFilter) -> Round<'a> {
    Round {
        lease: lease(owner),
        types,
        fresh: quota(1_000),
        retried: quota(1_000),
        bytes: usize::MAX,
        skip_recent: Duration::ZERO,
    }
}

/// Returns a quota of `rows` rows without a start position.
pub(crate) fn quota(rows: usize) -> Quota {
    Quota { rows, ..Quota::default() }
}

/// RoundClaims everything that is due.
pub(crate) async fn all<DB: TestDatabase>(store: &Store<DB>, owner: &str) -> RoundClaims {
    request(owner, &TypeFilter::ALL).claim(store).await.expect("a claim")
}

fn sequences(claims: &RoundClaims) -> Vec<i64> {
    claims.rows.iter().map(|row| row.sequence).collect()
}

async fn a_claimed_row_is_not_claimed_again_before_its_lease_expires<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let store = db.store().await;
    let rows = (&db, &store);
    let inserted = rows.insert_due(&[event("Paid")]).await;
    let claimed = all(&store, "a").await;
    assert_eq!(claimed.rows.len(), 1);
    assert_eq!(claimed.rows[0].sequence, inserted[0].sequence);
    assert_eq!((claimed.rows[0].token, claimed.rows[0].taken_over), (1, false));
    let row = rows.row(inserted[0].sequence).await;
    assert_eq!((row.token, row.locked_by.as_deref()), (1, Some("a")));
    assert!(all(&store, "b").await.rows.is_empty());
    rows.age(Duration::from_secs(31)).await;
    let again = all(&store, "b").await;
    assert_eq!((again.rows[0].token, again.rows[0].taken_over), (2, true));
}

async fn rows_are_claimed_by_due_time_then_sequence<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let late = rows.insert_due(&[event("A"), event("B")]).await;
    rows.age(Duration::from_secs(5)).await;
    let next = rows.insert_due(&[event("C")]).await;
    // The second of the first two is due before all others.
    let table = store.table();
    db.run(
        DB::AGE.replace("{table}", &table.to_string()).replace("{micros}", "9000000")
            + &format!(" WHERE sequence = {}", late[1].sequence),
    )
    .await;
    let claimed = all(&store, "a").await;
    assert_eq!(sequences(&claimed), [late[1].sequence, late[0].sequence, next[0].sequence]);
}

async fn new_and_retried_rows_have_separate_limits<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let poison: Vec<EventEnvelope> = (0..20).map(|_| event("Poison")).collect();
    rows.insert_due(&poison).await;
    let claimed = all(&store, "a").await;
    let failed: Vec<Settlement> = claimed
        .rows
        .iter()
        .map(|row| Settlement {
            sequence: row.sequence,
            token: row.token,
            verdict: Verdict::Retry { attempts: 1, delay: Duration::ZERO, error: "x".into() },
            history: None,
        })
        .collect();
    store.settle("a", &failed, Completion::Keep).await.unwrap();
    rows.insert_due(&[event("Fresh"), event("Fresh"), event("Fresh")]).await;
    let claim_request =
        Round { fresh: quota(2), retried: quota(5), ..request("b", &TypeFilter::ALL) };
    let claimed = claim_request.claim(&store).await.unwrap();
    let count_of = |status| claimed.rows.iter().filter(|row| row.status == status).count();
    assert_eq!((count_of(Status::New), count_of(Status::Retry)), (2, 5));
    assert!(
        claimed.fresh_until.is_some() && claimed.retried_until.is_some(),
        "both quotas were used up"
    );
    let claim_request =
        Round { fresh: quota(5), retried: quota(0), ..request("b", &TypeFilter::ALL) };
    let claimed = claim_request.claim(&store).await.unwrap();
    assert_eq!((claimed.rows.len(), claimed.fresh_until), (1, None));
}

async fn only_handled_event_types_are_claimed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let global = EventEnvelope::json("Created", "{}").unwrap();
    rows.insert_due(&[event("Paid"), event("Unknown"), global, event("Created")]).await;
    db.run(format!(
        "UPDATE {} SET aggregate_type = NULL WHERE aggregate_type = '__GLOBAL__'",
        store.table()
    ))
    .await;
    let known = store.type_filter(unnamed(&[
        ("Order", "Paid"),
        ("__GLOBAL__", "Created"),
        ("X", "Unknown"),
    ]));
    let claimed = request("a", &known).claim(&store).await.unwrap();
    let names: Vec<(&str, &str)> = claimed
        .rows
        .iter()
        .map(|row| (row.envelope.aggregate_type(), row.envelope.event_type()))
        .collect();
    assert_eq!(names, [("Order", "Paid"), ("__GLOBAL__", "Created")]);
    let nothing = store.type_filter([]);
    assert!(request("a", &nothing).claim(&store).await.unwrap().rows.is_empty());
    assert_eq!(all(&store, "b").await.rows.len(), 2, "the rest stays for nodes that handle it");
}

async fn excluded_event_types_are_not_claimed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let global = EventEnvelope::json("Created", "{}").unwrap();
    rows.insert_due(&[event("Paid"), event("Unknown"), global, event("Created")]).await;
    let null = "SET aggregate_type = NULL WHERE aggregate_type = '__GLOBAL__'";
    db.run(format!("UPDATE {} {null}", store.table())).await;
    let others = store.type_filter_except(
        every_unnamed(),
        unnamed(&[("Order", "Paid"), ("__GLOBAL__", "Created")]),
    );
    let claimed = request("a", &others).claim(&store).await.unwrap().rows;
    let names: Vec<&str> = claimed.iter().map(|row| row.envelope.event_type()).collect();
    assert_eq!(names, ["Unknown", "Created"]);
    let everything = store.type_filter(every_unnamed());
    assert_eq!(request("a", &everything).claim(&store).await.unwrap().rows.len(), 2);
}

async fn rows_below_the_low_watermark_are_not_claimed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("Old")]).await;
    rows.age(Duration::from_secs(60)).await;
    let new = rows.insert_due(&[event("New")]).await;
    let watermark = store.now().await.unwrap() - Duration::from_secs(10);
    let from = Quota { rows: 1_000, after: Some(Position::before(watermark)), until: None };
    let claim_request = Round { fresh: from, retried: from, ..request("a", &TypeFilter::ALL) };
    assert_eq!(sequences(&claim_request.claim(&store).await.unwrap()), [new[0].sequence]);
    assert_eq!(all(&store, "a").await.rows.len(), 1, "a full scan finds the rest");
}

async fn recent_rows_can_be_skipped<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("Paid")]).await;
    let minute = Duration::from_secs(60);
    let claim_request = Round { skip_recent: minute, ..request("a", &TypeFilter::ALL) };
    assert!(claim_request.claim(&store).await.unwrap().rows.is_empty());
    rows.age(minute).await;
    assert_eq!(claim_request.claim(&store).await.unwrap().rows.len(), 1);
}

async fn an_event_from_a_writer_with_a_fast_clock_is_due_at_once<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let ahead = std::time::SystemTime::now() + Duration::from_secs(3_600);
    let early = EventEnvelope::builder("A").payload_json("{}").occurred_at(ahead).build().unwrap();
    (&db, &store).insert_due(&[early]).await;
    assert_eq!(all(&store, "a").await.rows.len(), 1);
}

async fn a_full_batch_reports_its_last_position<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let before = store.now().await.unwrap() - Duration::from_secs(1);
    rows.insert_due(&[event("A"), event("B"), event("C")]).await;
    let claim_request = Round { fresh: quota(2), ..request("a", &TypeFilter::ALL) };
    let claimed = claim_request.claim(&store).await.unwrap();
    let until = claimed.fresh_until.expect("the batch was full");
    assert!(until.due > before && until.due <= store.now().await.unwrap());
    let claim_request =
        Round { fresh: Quota { rows: 2, after: Some(until), until: None }, ..claim_request };
    assert_eq!(
        claim_request.claim(&store).await.unwrap().rows.len(),
        1,
        "the next claim starts there"
    );
}

async fn a_lease_is_renewed_only_by_its_owner<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("B"), event("C")]).await;
    let renewals: Vec<Renewal> = all(&store, "a").await.rows.iter().map(Renewal::from).collect();
    rows.age(Duration::from_secs(29)).await;
    let wrong_token = [Renewal { token: renewals[1].token + 1, ..renewals[1] }];
    assert!(store.renew(lease("a"), &wrong_token).await.unwrap().is_empty());
    assert!(store.renew(lease("b"), &renewals).await.unwrap().is_empty(), "another owner");
    assert!(store.renew(lease("a"), &[]).await.unwrap().is_empty());
    let mut renewed = store.renew(lease("a"), &renewals[..2]).await.unwrap();
    renewed.sort_unstable();
    assert_eq!(renewed, [renewals[0].sequence, renewals[1].sequence]);
    rows.age(Duration::from_secs(2)).await;
    assert_eq!(
        sequences(&all(&store, "b").await),
        [renewals[2].sequence],
        "two were renewed in time"
    );
    let long = Lease { owner: "a", length: Duration::from_secs(3_600) };
    assert!(
        store.renew(long, &renewals[2..]).await.unwrap().is_empty(),
        "it belongs to another owner now"
    );
}

async fn an_undecodable_row_does_not_affect_other_rows<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let inserted = rows.insert_due(&[event("A"), event("B"), event("C"), event("D")]).await;
    let table = store.table();
    let bad = |column: &str, value: &str, row: usize| {
        format!("UPDATE {table} SET {column} = {value} WHERE sequence = {}", inserted[row].sequence)
    };
    db.run(bad("headers", "'[1]'", 1)).await;
    db.run(bad("event_id", "''", 2)).await;
    let claimed = all(&store, "a").await;
    assert_eq!(sequences(&claimed), [inserted[0].sequence, inserted[3].sequence]);
    let mut undecodable: Vec<(i64, &str)> =
        claimed.undecodable.iter().map(|row| (row.sequence, row.reason)).collect();
    undecodable.sort_unstable();
    assert_eq!(
        undecodable,
        [
            (inserted[1].sequence, "the headers are not a JSON object of strings"),
            (inserted[2].sequence, "the event id is invalid"),
        ]
    );
    let dead: Vec<Settlement> = claimed
        .undecodable
        .iter()
        .map(|row| Settlement {
            sequence: row.sequence,
            token: row.token,
            verdict: Verdict::Dead { attempts: 0, error: row.reason.to_owned() },
            history: None,
        })
        .collect();
    assert!(store.settle("a", &dead, Completion::Keep).await.unwrap().is_empty());
    assert_eq!(rows.row(inserted[1].sequence).await.status, Status::Dead);
}

async fn rows_with_an_unknown_status_are_not_claimed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("B")]).await;
    db.run(format!("UPDATE {} SET status = 9 WHERE event_type = 'A'", store.table())).await;
    assert_eq!(all(&store, "a").await.rows.len(), 1);
}

async fn batches_of_any_size_use_the_same_prepared_statements<DB: TestDatabase>(db: Fresh<DB>) {
    // Batches of any size run the same prepared statements: none is added to the cache.
    db.store().await;
    let pool = db.single().await;
    let store = Store::new(pool.clone(), Table::default());
    let cached = async || {
        let connection = pool.acquire().await.unwrap();
        sqlx::Connection::cached_statements_size(&*connection)
    };
    let round = async |count: usize| {
        let events: Vec<EventEnvelope> = (0..count).map(|_| event("Paid")).collect();
        let mut connection = pool.acquire().await.unwrap();
        let new: Vec<NewRow<'_>> = events
            .iter()
            .map(|envelope| NewRow {
                envelope,
                state: InitialState::Due,
                recipient: &Recipient::Unnamed,
            })
            .collect();
        store.insert(&mut connection, &new).await.unwrap();
        drop(connection);
        let claimed = all(&store, "a").await;
        assert_eq!(claimed.rows.len(), count);
        let renewals: Vec<Renewal> = claimed.rows.iter().map(Renewal::from).collect();
        assert_eq!(store.renew(lease("a"), &renewals).await.unwrap().len(), count);
        let done: Vec<Settlement> = renewals
            .iter()
            .map(|Renewal { sequence, token, .. }| Settlement {
                sequence: *sequence,
                token: *token,
                verdict: Verdict::Done,
                history: None,
            })
            .collect();
        assert!(store.settle("a", &done, Completion::Keep).await.unwrap().is_empty());
    };
    round(2).await;
    round(500).await;
    let before = cached().await;
    round(499).await;
    round(3).await;
    assert_eq!(cached().await, before);
}

on_every_database!(
    a_claimed_row_is_not_claimed_again_before_its_lease_expires,
    rows_are_claimed_by_due_time_then_sequence,
    new_and_retried_rows_have_separate_limits,
    only_handled_event_types_are_claimed,
    excluded_event_types_are_not_claimed,
    rows_below_the_low_watermark_are_not_claimed,
    recent_rows_can_be_skipped,
    an_event_from_a_writer_with_a_fast_clock_is_due_at_once,
    a_full_batch_reports_its_last_position,
    a_lease_is_renewed_only_by_its_owner,
    an_undecodable_row_does_not_affect_other_rows,
    rows_with_an_unknown_status_are_not_claimed,
    batches_of_any_size_use_the_same_prepared_statements,
);
