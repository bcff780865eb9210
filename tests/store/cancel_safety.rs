//! Futures that are dropped half-way, at every point where they wait.

use std::collections::HashSet;
use std::time::Duration;

use outbox_runtime::Error;
use outbox_runtime::store::{Completion, Settlement, Store, Table, TypeFilter, Verdict};
use outbox_runtime::write::Writer;
use outbox_tests::{Fresh, Rows, TestDatabase, event, lease, on_every_database};

use crate::claim::{all, request};
use crate::write::{business, business_rows, writer};

async fn a_dropped_commit_says_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, recorder) = writer(&db, 200).await;
    let mut whole = 0;
    // However far it got: never a hook, never a seat kept, and all or nothing in the table.
    for (round, polls) in rounds() {
        let mut tx = writer.begin().await.unwrap();
        business::<DB>(&mut tx, round).await.unwrap();
        tx.write(event("A")).unwrap();
        recorder.told();
        let before = recorder.hot().len();
        let finished = poll_times(tx.commit(), polls).await;
        if finished {
            assert_eq!(recorder.told(), ["after_commit A"]);
            assert_eq!(recorder.hot().len(), before + 1);
        } else {
            assert_eq!(recorder.hot().len(), before);
            assert_eq!(recorder.told(), Vec::<String>::new());
        }
        // The next one waits for the last to be over.
        writer.begin().await.unwrap().rollback().await.unwrap();
        let difference = "SELECT CAST((SELECT COUNT(*) FROM business) - \
             (SELECT COUNT(*) FROM outbox_event) AS {wide})";
        assert_eq!(db.number(difference.replace("{wide}", DB::WIDE)).await, 0);
        assert_eq!(recorder.free() + recorder.hot().len(), 200);
        whole += usize::from(finished);
    }
    assert!((3..60).contains(&whole), "{whole} came to their end");
}

/// How often to poll in each round: every small number several times, and at last as often as it takes.
fn rounds() -> impl Iterator<Item = (i32, i32)> {
    (0..60).map(|round| (round, if round < 57 { round % 19 + 1 } else { i32::MAX }))
}

async fn a_dropped_flush_loses_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    writer(&db, 0).await;
    let mut whole = 0;
    for (round, polls) in rounds() {
        // A new connection has nothing prepared yet.
        let writer = Writer::new(db.single().await, Table::default());
        let mut tx = writer.begin().await.unwrap();
        business::<DB>(&mut tx, round).await.unwrap();
        tx.write(event("A")).unwrap();
        let finished = poll_times(tx.flush(), polls).await;
        let before = business_rows(&db).await;
        // It may have been cut between two statements that belong together; then the commit says so.
        match tx.commit().await {
            Ok(()) => assert_eq!(business_rows(&db).await, before + 1, "cut after {polls}"),
            Err(Error::TransactionLost) => assert!(!finished, "cut after {polls}"),
            Err(error) => panic!("cut after {polls}: {error}"),
        }
        let events = (&db, writer.store()).count().await;
        assert_eq!(events, business_rows(&db).await, "cut after {polls}");
        whole += usize::from(finished);
    }
    assert!((3..60).contains(&whole), "{whole} came to their end");
}

async fn a_dropped_begin_leaks_no_connection<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    for polls in 1..60 {
        poll_times(writer.begin(), polls % 6 + 1).await;
    }
    let mut all = Vec::new();
    let connections =
        if DB::URL_VARIABLE.is_some() { db.pool.options().get_max_connections() } else { 1 };
    for id in 0..connections {
        let mut tx = writer.begin().await.unwrap();
        business::<DB>(&mut tx, i32::try_from(id).unwrap()).await.unwrap();
        all.push(tx);
    }
    for tx in all {
        tx.commit().await.unwrap();
    }
    assert_eq!(business_rows(&db).await, i64::from(connections));
}

async fn a_dropped_begin_leaves_no_transaction_open<DB: TestDatabase>(db: Fresh<DB>) {
    writer(&db, 0).await;
    let mut whole = 0;
    for (round, polls) in rounds() {
        let pool = db.single().await;
        let writer = Writer::new(pool.clone(), Table::default());
        whole += usize::from(poll_times(writer.begin(), polls).await);
        // Somebody else's statement on the same connection is committed by itself.
        let mut connection = pool.acquire().await.unwrap();
        business::<DB>(&mut connection, round).await.unwrap();
        assert_eq!(business_rows(&db).await, i64::from(round) + 1, "after {polls} polls");
    }
    assert!((3..60).contains(&whole), "{whole} came to their end");
}

/// Polls a future so many times at most; whether it came to its end.
async fn poll_times<F: Future>(future: F, times: i32) -> bool {
    outbox_tests::poll_times(future, times.unsigned_abs()).await.is_some()
}

async fn a_dropped_claim_loses_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let (mut whole, mut written) = (0, 0);
    for (_, polls) in rounds() {
        rows.insert_due(&[event("A"), event("B")]).await;
        written += 2;
        let store = Store::new(db.single().await, Table::default());
        let claim = store.claim(request("a", &TypeFilter::ALL));
        whole += usize::from(poll_times(claim, polls).await);
        store.now().await.expect("the pool has a connection again");
    }
    assert!((3..60).contains(&whole), "{whole} came to their end");
    // Claimed by one that was cut short or not: when the lease is over, all are there.
    let mut found = HashSet::new();
    while found.len() < written {
        rows.age(Duration::from_secs(31)).await;
        found.extend(all(&store, "b").await.rows.iter().map(|row| row.sequence));
    }
}

async fn a_dropped_renewal_leaves_the_lease_as_it_is_or_longer<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A")]).await;
    let row = all(&store, "a").await.rows.remove(0);
    let held = [(&row).into()];
    let mut whole = 0;
    for (_, polls) in rounds() {
        let store = Store::new(db.single().await, Table::default());
        whole += usize::from(poll_times(store.renew(lease("a"), &held), polls).await);
        assert!(all(&store, "b").await.rows.is_empty(), "still a's");
    }
    assert!((3..60).contains(&whole), "{whole} came to their end");
    assert_eq!(store.renew(lease("a"), &held).await.unwrap(), [row.sequence]);
}

async fn a_dropped_result_can_be_recorded_again<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    for completion in [Completion::Keep, Completion::Delete] {
        let mut whole = 0;
        for (_, polls) in rounds() {
            rows.insert_due(&[event("A")]).await;
            let row = all(&store, "a").await.rows.remove(0);
            let done =
                [Settlement { sequence: row.sequence, token: row.token, result: Verdict::Done }];
            let store = Store::new(db.single().await, Table::default());
            whole += usize::from(poll_times(store.finish("a", &done, completion), polls).await);
            // Whether it got through or not: it is there now, and not stale.
            assert!(store.finish("a", &done, completion).await.unwrap().is_empty());
            assert!(all(&store, "b").await.rows.is_empty());
        }
        assert!((3..60).contains(&whole), "{whole} came to their end");
    }
}

on_every_database!(
    a_dropped_commit_says_nothing,
    a_dropped_flush_loses_nothing,
    a_dropped_begin_leaks_no_connection,
    a_dropped_begin_leaves_no_transaction_open,
    a_dropped_claim_loses_nothing,
    a_dropped_renewal_leaves_the_lease_as_it_is_or_longer,
    a_dropped_result_can_be_recorded_again,
);
