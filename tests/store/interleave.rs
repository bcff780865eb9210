//! Pairs of concurrent operations on the same rows, each on its own connection.

use std::collections::HashSet;
use std::time::Duration;

use outbox::event::Status;
use outbox::{Error, EventEnvelope};
use outbox_runtime::event::{Recipient, Verdict};
use outbox_runtime::store::{Completion, InitialState, NewRow, Renewal, Settlement};
use outbox_tests::{
    Fresh, Round, TestDatabase, TestTable, event, eventually, lease, on_every_database, unnamed,
};
use sqlx::SqlSafeStr;

use super::claim::{self, request};
use super::dead::dead_events;
use super::housekeeping::is_deleting;
use super::settle::{claimed, dead, retry, settlement};

/// Many nodes claim concurrently, and no row is claimed twice.
async fn concurrent_claims_never_share_a_row<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let events: Vec<EventEnvelope> = (0..600).map(|_| event("A")).collect();
    (&db, &store).insert_due(&events).await;
    let claimers: Vec<_> = (0..6)
        .map(|index| {
            let store = store.clone();
            tokio::spawn(async move {
                let owner = format!("node-{index}");
                let known = store.type_filter(unnamed(&[("Order", "A")]));
                let mut taken = Vec::new();
                loop {
                    let claim_request =
                        Round { fresh: claim::quota(20), ..request(&owner, &known) };
                    let claims = claim_request.claim(&store).await.unwrap();
                    if claims.rows.is_empty() {
                        return taken;
                    }
                    assert!(claims.rows.iter().all(|row| row.token == 1));
                    taken.extend(claims.rows.iter().map(|row| row.sequence));
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.unwrap());
    }
    // A claim may skip rows that another claim has locked at that time but does not take.
    let distinct: HashSet<i64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "no row is claimed twice");
    let rest = claim::all(&store, "last").await.rows.len();
    assert_eq!(all.len() + rest, 600);
}

/// Rows of an open transaction are invisible to a claim, and do not block it.
async fn a_claim_skips_uncommitted_rows_and_finds_them_later<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let (open, done) = (event("Open"), event("Done"));
    if DB::URL_VARIABLE.is_none() {
        // SQLite has one writer: the claim waits for the transaction instead.
        return;
    }
    let mut tx = db.pool.begin().await.unwrap();
    let row = NewRow { envelope: &open, state: InitialState::Due, recipient: &Recipient::Unnamed };
    store.insert(&mut tx, &[row]).await.unwrap();
    (&db, &store).insert_due(&[done]).await;
    let seen = claim::all(&store, "a").await.rows;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].envelope.event_type(), "Done");
    tx.commit().await.unwrap();
    let seen = claim::all(&store, "a").await.rows;
    assert_eq!(seen[0].envelope.event_type(), "Open", "a lower sequence, committed later");
}

/// Two transactions insert the same id, the first is still open: the second waits for it.
async fn an_insert_waits_for_an_uncommitted_row_with_the_same_id<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    if DB::URL_VARIABLE.is_none() {
        return;
    }
    for commits in [true, false] {
        let envelope = event("A");
        let mut first = db.pool.begin().await.unwrap();
        let row = NewRow {
            envelope: &envelope,
            state: InitialState::Due,
            recipient: &Recipient::Unnamed,
        };
        let inserted = store.insert(&mut first, &[row]).await.unwrap();
        let (other_store, pool, same) = (store.clone(), db.pool.clone(), envelope.clone());
        let second = tokio::spawn(async move {
            let mut second = pool.begin().await.unwrap();
            let row = NewRow {
                envelope: &same,
                state: InitialState::Due,
                recipient: &Recipient::Unnamed,
            };
            let inserted = other_store.insert(&mut second, &[row]).await.unwrap();
            second.commit().await.unwrap();
            inserted[0]
        });
        // It cannot finish before the first transaction ends.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert!(!second.is_finished());
        if commits {
            first.commit().await.unwrap();
            let second = second.await.unwrap();
            assert_eq!((second.duplicate, second.sequence), (true, inserted[0].sequence));
        } else {
            first.rollback().await.unwrap();
            assert!(!second.await.unwrap().duplicate);
        }
    }
    assert_eq!((&db, &store).count().await, 2);
}

/// A settlement of a row whose lease has expired, while another owner claims it.
async fn a_settlement_and_a_reclaim_never_both_succeed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let old = claimed(&db, &store).await;
    rows.age(Duration::from_secs(31)).await;
    let (late, new) = tokio::join!(
        async {
            store.settle("a", &[settlement(&old, Verdict::Done)], Completion::Keep).await.unwrap()
        },
        async { claim::all(&store, "b").await.rows },
    );
    // Either of them, never both.
    match new.first() {
        Some(new) => {
            assert_eq!((late.stale, new.token), (vec![old.sequence], 2));
            let done = [settlement(new, Verdict::Done)];
            assert!(store.settle("b", &done, Completion::Keep).await.unwrap().is_empty());
        }
        None => assert!(late.is_empty()),
    }
    assert_eq!(rows.row(old.sequence).await.status, Status::Done);
}

/// A renewal of an expired row, while another owner claims it.
async fn a_renewal_and_a_reclaim_never_both_succeed<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let old = claimed(&db, &store).await;
    rows.age(Duration::from_secs(31)).await;
    let renewals = [(&old).into()];
    let (renewed, new) =
        tokio::join!(async { store.renew(lease("a"), &renewals).await.unwrap() }, async {
            claim::all(&store, "b").await.rows
        },);
    assert!(renewed.is_empty() || new.is_empty(), "at most one of them succeeds");
    let row = rows.row(old.sequence).await;
    let owner = if new.is_empty() { "a" } else { "b" };
    assert_eq!(row.locked_by.as_deref(), Some(owner));
}

/// A replay while the settlement as dead is sent again.
async fn a_repeated_settlement_does_not_undo_a_replay<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let row = claimed(&db, &store).await;
    let died = [settlement(&row, dead(1, "x"))];
    store.settle("a", &died, Completion::Keep).await.unwrap();
    let events = dead_events(&store);
    let (replayed, again) = tokio::join!(events.replay(row.envelope.event_id()), async {
        store.settle("a", &died, Completion::Keep).await.unwrap()
    },);
    replayed.unwrap();
    assert!(again.is_empty() || again.stale == [row.sequence]);
    assert_eq!(
        rows.row(row.sequence).await.status,
        Status::New,
        "the late settlement does not make it dead again"
    );
}

/// A purge while the settlement is sent again.
async fn a_repeated_settlement_does_not_touch_a_purged_row<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let row = claimed(&db, &store).await;
    let done = [settlement(&row, Verdict::Done)];
    store.settle("a", &done, Completion::Keep).await.unwrap();
    rows.age(Duration::from_secs(3_600)).await;
    let (purged, again) = tokio::join!(
        async { store.purge_done(Duration::from_secs(60), None, 10).await.unwrap().deleted },
        async { store.settle("a", &done, Completion::Keep).await.unwrap() },
    );
    assert_eq!(purged, 1);
    assert!(again.is_empty() || again.stale == [row.sequence]);
    assert_eq!(rows.count().await, 0);
    // The id is inserted again; the late settlement of the deleted row does not affect it.
    let again = rows.insert_due(std::slice::from_ref(&row.envelope)).await;
    assert!(!again[0].duplicate);
    let late = store.settle("a", &done, Completion::Keep).await.unwrap();
    assert_eq!(late.stale, [row.sequence]);
    assert_eq!(rows.row(again[0].sequence).await.status, Status::New);
}

/// All operations concurrently, under load: each event is done exactly once and nothing fails.
async fn concurrent_operations_settle_each_event_once<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    const EVENTS: usize = 400;
    let inserter = {
        let (store, pool) = (store.clone(), db.pool.clone());
        tokio::spawn(async move {
            for _ in 0..EVENTS / 20 {
                let events: Vec<EventEnvelope> = (0..20).map(|_| event("A")).collect();
                let new: Vec<NewRow<'_>> = events
                    .iter()
                    .map(|envelope| NewRow {
                        envelope,
                        state: InitialState::Due,
                        recipient: &Recipient::Unnamed,
                    })
                    .collect();
                let mut connection = pool.acquire().await.unwrap();
                store.insert(&mut connection, &new).await.unwrap();
            }
        })
    };
    let workers: Vec<_> = (0..3)
        .map(|index| {
            let store = store.clone();
            tokio::spawn(async move {
                let owner = format!("node-{index}");
                let mut done = 0;
                let mut idle = 0;
                while idle < 200 {
                    let claims = claim::all(&store, &owner).await;
                    idle = if claims.rows.is_empty() { idle + 1 } else { 0 };
                    let renewals: Vec<Renewal> = claims.rows.iter().map(Renewal::from).collect();
                    store.renew(lease(&owner), &renewals).await.unwrap();
                    let results: Vec<Settlement> = claims
                        .rows
                        .iter()
                        .map(|row| match (row.sequence % 5, row.attempts) {
                            (0, 0) => settlement(row, retry(1, Duration::ZERO, "once")),
                            _ => settlement(row, Verdict::Done),
                        })
                        .collect();
                    let finished = |finish: &&Settlement| matches!(finish.verdict, Verdict::Done);
                    done += results.iter().filter(finished).count();
                    let stale = store.settle(&owner, &results, Completion::Keep).await.unwrap();
                    assert!(stale.is_empty(), "no lease was lost");
                    tokio::task::yield_now().await;
                }
                done
            })
        })
        .collect();
    inserter.await.unwrap();
    let mut done = 0;
    for worker in workers {
        done += worker.await.unwrap();
    }
    assert_eq!(done, EVENTS, "each exactly once");
    let table = store.table();
    let left = format!("SELECT COUNT(*) FROM {table} WHERE status <> 1");
    assert_eq!(db.number(left).await, 0);
}

/// A discard that waits for a replay finds the event alive, and does not delete it. Not on SQLite, where lock
/// waits cannot be observed.
async fn a_discard_after_a_replay_is_refused<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        return;
    }
    let store = db.store().await;
    db.fill("A", 3, 1, 1).await;
    let mut replaying = db.pool.begin().await.unwrap();
    let replay = "UPDATE outbox_event SET status = 0, done_at = NULL WHERE event_id = 'e1'";
    DB::run(&mut replaying, replay.into_sql_str()).await.unwrap();
    let dead = dead_events(&store);
    let discarding = tokio::spawn(async move { dead.discard("e1", "a test").await });
    eventually("it waits for the row", async || is_deleting(&db).await).await;
    replaying.commit().await.unwrap();
    let refused = discarding.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::NotDead { status: Status::New, .. }), "{refused}");
    assert_eq!((&db, &store).count().await, 1);
}

on_every_database!(
    concurrent_claims_never_share_a_row,
    a_discard_after_a_replay_is_refused,
    a_claim_skips_uncommitted_rows_and_finds_them_later,
    an_insert_waits_for_an_uncommitted_row_with_the_same_id,
    a_settlement_and_a_reclaim_never_both_succeed,
    a_renewal_and_a_reclaim_never_both_succeed,
    a_repeated_settlement_does_not_undo_a_replay,
    a_repeated_settlement_does_not_touch_a_purged_row,
    concurrent_operations_settle_each_event_once,
);
