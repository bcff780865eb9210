//! Futures that are dropped at each of their await points.

use std::collections::HashSet;
use std::time::Duration;

use outbox_runtime::Error;
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, Settlement, Store, StoreOf, Table, TypeFilter};
use outbox_runtime::write::Writer;
use outbox_tests::{Fresh, TestDatabase, TestTable, event, lease, on_every_database};

use crate::claim::{all, request};
use crate::write::{business, business_rows, writer};

async fn a_dropped_commit_is_all_or_nothing_and_calls_no_hook<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 200).await;
    let mut completed = 0;
    // However far it got: no hook is called, no permit is leaked, and the table has all rows or none.
    for (round, polls) in rounds() {
        let mut tx = writer.begin().await.unwrap();
        business::<DB>(&mut tx, round).await.unwrap();
        tx.write(event("A")).unwrap();
        probe.hook_calls();
        let before = probe.hot().len();
        let finished = poll_times(tx.commit(), polls).await;
        if finished {
            assert_eq!(probe.hook_calls(), ["after_commit A"]);
            assert_eq!(probe.hot().len(), before + 1);
        } else {
            assert_eq!(probe.hot().len(), before);
            assert_eq!(probe.hook_calls(), Vec::<String>::new());
        }
        // The next transaction waits until the previous one has ended.
        writer.begin().await.unwrap().rollback().await.unwrap();
        let difference = "SELECT CAST((SELECT COUNT(*) FROM business) - \
             (SELECT COUNT(*) FROM outbox_event) AS {wide})";
        assert_eq!(db.number(difference.replace("{wide}", DB::WIDE)).await, 0);
        assert_eq!(probe.free() + probe.hot().len(), 200);
        completed += usize::from(finished);
    }
    assert_some_dropped::<DB>(completed, 60);
}

/// Asserts that some rounds were completed and others were not. On a busy machine, SQLite may answer within the first
/// poll every time.
fn assert_some_dropped<DB: TestDatabase>(completed: usize, rounds: usize) {
    let all_may_complete = DB::SHORT_NAME == "sqlite";
    assert!(completed >= rounds / 20, "{completed} completed");
    assert!(completed < rounds || all_may_complete, "{completed} completed");
}

/// Number of polls in each round: every small number several times, and finally as many as needed.
fn rounds() -> impl Iterator<Item = (i32, i32)> {
    (0..60).map(|round| (round, if round < 57 { round % 19 + 1 } else { i32::MAX }))
}

async fn a_dropped_flush_loses_no_event<DB: TestDatabase>(db: Fresh<DB>) {
    writer(&db, 0).await;
    let mut completed = 0;
    for (round, polls) in rounds() {
        // A new connection has no prepared statements yet.
        let writer = Writer::new(db.single().await, Table::default());
        let mut tx = writer.begin().await.unwrap();
        business::<DB>(&mut tx, round).await.unwrap();
        tx.write(event("A")).unwrap();
        let finished = poll_times(tx.flush(), polls).await;
        let before = business_rows(&db).await;
        // It may be dropped between two statements that belong together; then the commit fails.
        match tx.commit().await {
            Ok(()) => {
                assert_eq!(business_rows(&db).await, before + 1, "dropped after {polls} polls")
            }
            Err(Error::TransactionLost) => assert!(!finished, "dropped after {polls} polls"),
            Err(error) => panic!("dropped after {polls} polls: {error}"),
        }
        let events = (&db, writer.store()).count().await;
        assert_eq!(events, business_rows(&db).await, "dropped after {polls} polls");
        completed += usize::from(finished);
    }
    assert_some_dropped::<DB>(completed, 60);
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
    let mut completed = 0;
    for (round, polls) in rounds() {
        let pool = db.single().await;
        let writer = Writer::new(pool.clone(), Table::default());
        completed += usize::from(poll_times(writer.begin(), polls).await);
        // A later statement on the same connection is auto-committed.
        let mut connection = pool.acquire().await.unwrap();
        business::<DB>(&mut connection, round).await.unwrap();
        assert_eq!(business_rows(&db).await, i64::from(round) + 1, "after {polls} polls");
    }
    assert_some_dropped::<DB>(completed, 60);
}

/// Polls a future at most `times` times; returns whether it completed.
async fn poll_times<F: Future>(future: F, times: i32) -> bool {
    outbox_tests::poll_times(future, times.unsigned_abs()).await.is_some()
}

async fn a_dropped_claim_loses_no_row<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let (mut completed, mut written) = (0, 0);
    for (_, polls) in rounds() {
        rows.insert_due(&[event("A"), event("B")]).await;
        written += 2;
        let store = Store::new(db.single().await, Table::default());
        let claim = request("a", &TypeFilter::ALL).claim(&store);
        completed += usize::from(poll_times(claim, polls).await);
        store.now().await.expect("the pool has a connection again");
    }
    assert_some_dropped::<DB>(completed, 60);
    // Whether or not a dropped claim took them: all rows are available once the lease has expired.
    let mut found = HashSet::new();
    while found.len() < written {
        rows.age(Duration::from_secs(31)).await;
        found.extend(all(&store, "b").await.rows.iter().map(|row| row.sequence));
    }
}

async fn a_dropped_renewal_never_shortens_the_lease<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A")]).await;
    let row = all(&store, "a").await.rows.remove(0);
    let renewals = [(&row).into()];
    let mut completed = 0;
    for (_, polls) in rounds() {
        let store = Store::new(db.single().await, Table::default());
        completed += usize::from(poll_times(store.renew(lease("a"), &renewals), polls).await);
        assert!(all(&store, "b").await.rows.is_empty(), "still claimed by a");
    }
    assert_some_dropped::<DB>(completed, 60);
    assert_eq!(store.renew(lease("a"), &renewals).await.unwrap(), [row.sequence]);
}

async fn a_dropped_settlement_can_be_repeated<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let mut completed = 0;
    for completion in [Completion::Keep, Completion::Delete] {
        for (_, polls) in rounds() {
            rows.insert_due(&[event("A")]).await;
            let row = all(&store, "a").await.rows.remove(0);
            let done = [Settlement {
                sequence: row.sequence,
                token: row.token,
                verdict: Verdict::Done,
                history: None,
            }];
            let store = Store::new(db.single().await, Table::default());
            completed += usize::from(poll_times(store.settle("a", &done, completion), polls).await);
            // Whether or not the first call was recorded: it is now, and is not stale.
            assert!(store.settle("a", &done, completion).await.unwrap().is_empty());
            assert!(all(&store, "b").await.rows.is_empty());
        }
    }
    assert_some_dropped::<DB>(completed, 120);
}

on_every_database!(
    a_dropped_commit_is_all_or_nothing_and_calls_no_hook,
    a_dropped_flush_loses_no_event,
    a_dropped_begin_leaks_no_connection,
    a_dropped_begin_leaves_no_transaction_open,
    a_dropped_claim_loses_no_row,
    a_dropped_renewal_never_shortens_the_lease,
    a_dropped_settlement_can_be_repeated,
);
