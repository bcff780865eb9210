//! Statistics.

use std::time::Duration;

use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, TypeFilter};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, on_every_database, unnamed};

use super::claim;
use super::settle::{dead, retry, settlement};

async fn rows_are_counted_by_status<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    let known = store.type_filter(unnamed(&[("Order", "A")]));
    let empty = store.stats(&known).await.unwrap();
    assert_eq!((empty.pending, empty.locked, empty.dead, empty.unroutable), (0, 0, 0, 0));
    assert_eq!(empty.oldest_overdue, Duration::ZERO);

    rows.insert_due(&[event("A"), event("A"), event("A"), event("A"), event("B")]).await;
    let claim_request = claim::request("a", &known);
    let claimed = claim_request.claim(&store).await.unwrap().rows;
    let results = [
        settlement(&claimed[0], Verdict::Done),
        settlement(&claimed[1], dead(1, "x")),
        settlement(&claimed[2], retry(1, Duration::from_secs(3_600), "x")),
    ];
    store.settle("a", &results, Completion::Keep).await.unwrap();
    let stats = store.stats(&known).await.unwrap();
    assert_eq!((stats.pending, stats.locked, stats.dead, stats.unroutable), (3, 1, 1, 1));
    assert_eq!(store.stats(&TypeFilter::ALL).await.unwrap().unroutable, 0);

    rows.age(Duration::from_secs(100)).await;
    let stats = store.stats(&known).await.unwrap();
    assert!(stats.oldest_overdue >= Duration::from_secs(100), "{stats:?}");
    assert!(stats.oldest_overdue < Duration::from_secs(160), "{stats:?}");
}

async fn a_row_claimed_for_long_counts_as_overdue<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A")]).await;
    let row = claim::all(&store, "a").await.rows.remove(0);
    for _ in 0..3 {
        rows.age(Duration::from_secs(20)).await;
        let lease = outbox_tests::lease("a");
        assert_eq!(store.renew(lease, &[(&row).into()]).await.unwrap().len(), 1);
    }
    let stats = store.stats(&TypeFilter::ALL).await.unwrap();
    assert!(stats.oldest_overdue >= Duration::from_secs(60), "{stats:?}");
}

async fn now_is_the_database_clock<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let (before, now) = (std::time::SystemTime::now(), store.now().await.unwrap());
    let off = now.duration_since(before).unwrap_or_else(|error| error.duration());
    assert!(off < Duration::from_secs(10), "{off:?}");
}

on_every_database!(
    rows_are_counted_by_status,
    a_row_claimed_for_long_counts_as_overdue,
    now_is_the_database_clock
);
