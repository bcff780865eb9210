//! A relay that cannot configure its sessions, as behind a connection pooler: each statement sets its options
//! in its own transaction.

use std::time::Duration;

use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, Renewal, Settlement, TypeFilter};
use outbox_tests::{Fresh, Round, TestDatabase, TestTable, event, lease, on_every_server};
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};

use super::claim::request;
use super::settle::settlement;

async fn the_store_works_without_session_settings<DB: TestDatabase>(db: Fresh<DB>) {
    let application = db.store().await;
    let rows = (&db, &application);
    rows.insert_due(&[event("A"), event("B"), event("C")]).await;
    let store = application.explaining_pooled_relay();
    let claim_request = Round { lease: lease("a"), ..request("a", &TypeFilter::ALL) };
    let claimed = claim_request.claim(&store).await.unwrap().rows;
    assert_eq!(claimed.len(), 3);
    let renewals: Vec<Renewal> = claimed.iter().map(Renewal::from).collect();
    assert_eq!(store.renew(lease("a"), &renewals).await.unwrap().len(), 3);
    assert!(store.peek(None, None).await.unwrap().next_in.is_some());

    // Another session has locked the first row: the others are settled, and the first one once it is unlocked.
    let mut session = DB::Connection::connect_with(&db.pool.connect_options()).await.unwrap();
    let first = claimed[0].sequence;
    let lock = format!("SELECT 1 FROM outbox_event WHERE sequence = {first} FOR UPDATE");
    for sql in ["BEGIN".to_owned(), lock] {
        DB::run(&mut session, AssertSqlSafe(sql).into_sql_str()).await.unwrap();
    }
    let done: Vec<Settlement> = claimed.iter().map(|row| settlement(row, Verdict::Done)).collect();
    let unsettled = store.settle("a", &done, Completion::Keep).await.unwrap();
    assert_eq!((unsettled.locked, unsettled.stale), (vec![first], vec![]));
    DB::run(&mut session, "ROLLBACK".into_sql_str()).await.unwrap();
    assert!(store.settle("a", &done, Completion::Keep).await.unwrap().is_empty());

    rows.age(Duration::from_secs(60)).await;
    assert_eq!(store.purge_done(Duration::from_secs(5), None, 10).await.unwrap().deleted, 3);
    assert_eq!(rows.count().await, 0);
}

on_every_server!(the_store_works_without_session_settings);
