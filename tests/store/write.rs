//! Writing in a transaction.

use outbox::EventEnvelope;
use outbox::event::EventError;
use outbox_runtime::Error;
use outbox_runtime::store::StoreOf;
use outbox_runtime::write::{WriteOutcome, Writer};
use outbox_tests::{
    Fresh, PROBE_OWNER, TestDatabase, TestTable, WriterProbe, event, on_every_database,
};

/// Returns a writer on a migrated table, with a number of permits, and its probe.
pub(crate) async fn writer<DB: TestDatabase>(
    db: &Fresh<DB>,
    permits: usize,
) -> (Writer<DB>, WriterProbe) {
    db.store().await;
    db.run("CREATE TABLE business (id INT PRIMARY KEY)").await;
    WriterProbe::writer(db.pool.clone(), permits)
}

pub(crate) async fn business<DB: TestDatabase>(
    connection: &mut DB::Connection,
    id: i32,
) -> sqlx::Result<()> {
    let sql = format!("INSERT INTO business (id) VALUES ({id})");
    DB::run(connection, sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe(sql))).await
}

/// Runs a query, so that the transaction takes its snapshot, if its isolation level has one.
pub(crate) async fn read<DB: TestDatabase>(connection: &mut DB::Connection) {
    let sql = sqlx::SqlSafeStr::into_sql_str("SELECT id FROM business");
    DB::fetch(connection, sql, vec![]).await.unwrap();
}

pub(crate) async fn business_rows<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    db.number("SELECT COUNT(*) FROM business").await
}

async fn events_and_business_are_committed_together<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 1).await;
    let rows = (&db, writer.store());
    let mut tx = writer.begin().await.unwrap();
    business::<DB>(&mut tx, 1).await.unwrap();
    let id = tx.write(event("A")).unwrap().expect("an id");
    assert_eq!(id.as_str().len(), 26);
    assert_eq!(tx.write_all([event("B"), event("C")]).unwrap().len(), 2);
    assert_eq!(probe.hook_calls().len(), 4, "before and after, for each call");
    tx.commit().await.unwrap();
    assert_eq!((business_rows(&db).await, rows.count().await), (1, 3));
    assert_eq!(probe.hook_calls(), ["after_commit A,B,C"]);
    let hot = probe.hot();
    assert_eq!((hot.len(), probe.due()), (1, 2), "one had a permit");
    let row = rows.row(hot[0].0).await;
    assert_eq!((row.token, row.locked_by.as_deref()), (1, Some(PROBE_OWNER)));
    let due = super::claim::all(writer.store(), "poller").await.rows;
    assert_eq!(due.len(), 2, "no poller can claim the other one");
}

async fn a_rollback_undoes_both<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 5).await;
    let mut tx = writer.begin().await.unwrap();
    business::<DB>(&mut tx, 1).await.unwrap();
    tx.write(event("A")).unwrap();
    tx.flush().await.unwrap();
    tx.write(event("B")).unwrap();
    assert_eq!(probe.free(), 4);
    probe.hook_calls();
    tx.rollback().await.unwrap();
    assert_eq!(probe.hook_calls(), ["after_rollback A,B"]);
    assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (0, 0));
    assert_eq!((probe.free(), probe.hot().len(), probe.due()), (5, 0, 0));
}

async fn a_dropped_transaction_is_rolled_back_even_outside_the_runtime<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let (writer, probe) = writer(&db, 5).await;
    for outside in [false, true] {
        let mut tx = writer.begin().await.unwrap();
        business::<DB>(&mut tx, 1).await.unwrap();
        tx.write(event("A")).unwrap();
        tx.flush().await.unwrap();
        probe.hook_calls();
        if outside {
            std::thread::spawn(move || drop(tx)).join().unwrap();
        } else {
            drop(tx);
        }
        assert_eq!(probe.hook_calls(), ["after_rollback A"]);
        // The next transaction waits until the previous one is rolled back.
        let tx = writer.begin().await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (0, 0));
        assert_eq!((probe.free(), probe.hot().len()), (5, 0));
    }
}

async fn flush_reports_the_outcome_of_each_event<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 5).await;
    let (first, second) = (event("A"), event("B"));
    let mut tx = writer.begin().await.unwrap();
    assert!(tx.flush().await.unwrap().is_empty());
    tx.write(first.clone()).unwrap();
    let written = tx.flush().await.unwrap();
    assert_eq!(written[0].event_id, first.event_id());
    assert_eq!(written[0].outcome, WriteOutcome::Inserted);
    tx.write_all([first, second]).unwrap();
    let again = tx.flush().await.unwrap();
    assert_eq!(again[0].sequence, written[0].sequence);
    assert_eq!(again[0].outcome, WriteOutcome::Duplicate);
    assert_eq!(again[1].outcome, WriteOutcome::Inserted);
    assert_eq!(probe.free(), 3, "a duplicate frees its permit");
    tx.commit().await.unwrap();
    assert_eq!((probe.hot().len(), probe.due()), (2, 0));
}

async fn invalid_input_is_refused_and_loses_no_other_event<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 5).await;
    let mut tx = writer.begin().await.unwrap();
    business::<DB>(&mut tx, 1).await.unwrap();
    tx.write(event("A")).unwrap();
    let bad = EventEnvelope::builder("").payload_json("{}");
    let refused = tx.write(bad).unwrap_err();
    assert!(matches!(refused, Error::Event(EventError::Empty(_))));
    let mixed = [EventEnvelope::builder("B").payload_json("{}"), EventEnvelope::builder("C")];
    assert!(matches!(tx.write_all(mixed), Err(Error::Event(EventError::PayloadMissing))));
    let refused = tx.write(event("Refused")).unwrap_err();
    assert!(matches!(refused, Error::Hook(_)), "{refused}");
    assert_eq!(tx.write(event("Suppressed")).unwrap(), None);
    assert_eq!(tx.write_all([event("Suppressed"), event("D")]).unwrap().len(), 1);
    probe.hook_calls();
    assert!(tx.write_all(Vec::<EventEnvelope>::new()).unwrap().is_empty());
    assert!(probe.hook_calls().is_empty(), "an empty batch calls no hook");
    tx.commit().await.unwrap();
    assert_eq!(probe.hook_calls(), ["after_commit A,D"]);
    assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (1, 2));
}

async fn a_panicking_hook_changes_nothing<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 5).await;
    let mut tx = writer.begin().await.unwrap();
    tx.write(event("Panic")).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(probe.hot().len(), 1);
    assert_eq!((&db, writer.store()).count().await, 1);
}

async fn a_transaction_without_events_commits<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 5).await;
    let mut tx = writer.begin().await.unwrap();
    business::<DB>(&mut tx, 1).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(business_rows(&db).await, 1);
    assert!(probe.hook_calls().is_empty());
}

async fn a_closure_commits_or_rolls_back<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 5).await;
    let answer = writer
        .transaction(async |tx| {
            business::<DB>(tx, 1).await.map_err(|error| error.to_string())?;
            tx.write(event("A")).map_err(|error| error.to_string())?;
            Ok::<_, Failure>(42)
        })
        .await;
    assert_eq!(answer.unwrap(), 42);
    probe.hook_calls();
    let answer = writer
        .transaction(async |tx| {
            business::<DB>(tx, 2).await.map_err(|error| error.to_string())?;
            tx.write(event("B")).map_err(|error| error.to_string())?;
            Err::<(), _>(Failure("changed my mind".to_owned()))
        })
        .await;
    assert_eq!(answer.unwrap_err().0, "changed my mind");
    assert_eq!(probe.hook_calls(), ["before_write B", "after_write B", "after_rollback B"]);
    assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (1, 1));
}

#[derive(Debug)]
struct Failure(String);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

async fn a_transaction_can_move_between_tasks<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    let mut tx = writer.begin().await.unwrap();
    let tx = tokio::task::spawn(async move {
        tx.write(event("A")).unwrap();
        tx
    });
    tx.await.unwrap().commit().await.unwrap();
    let spawned = writer.clone();
    let run = async move {
        spawned.transaction(async |tx| tx.write(event("B")).map(drop)).await.unwrap();
    };
    tokio::task::spawn(run).await.unwrap();
    assert_eq!((&db, writer.store()).count().await, 2);
}

async fn a_savepoint_rollback_discards_its_events<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 9).await;
    let mut tx = writer.begin().await.unwrap();
    tx.write(event("Outer")).unwrap();

    let mut undone = tx.savepoint().await.unwrap();
    business::<DB>(&mut undone, 1).await.unwrap();
    undone.write(event("Undone")).unwrap();
    probe.hook_calls();
    undone.rollback().await.unwrap();
    assert_eq!(probe.hook_calls(), ["after_rollback Undone"]);

    let mut dropped = tx.savepoint().await.unwrap();
    business::<DB>(&mut dropped, 2).await.unwrap();
    dropped.write(event("Dropped")).unwrap();
    drop(dropped);

    let mut kept = tx.savepoint().await.unwrap();
    business::<DB>(&mut kept, 3).await.unwrap();
    kept.write(event("Kept")).unwrap();
    let mut nested = kept.savepoint().await.unwrap();
    business::<DB>(&mut nested, 4).await.unwrap();
    nested.write_all([event("NestedUndone")]).unwrap();
    nested.rollback().await.unwrap();
    let mut nested = kept.savepoint().await.unwrap();
    business::<DB>(&mut nested, 5).await.unwrap();
    nested.write(event("Nested")).unwrap();
    nested.release().await.unwrap();
    kept.release().await.unwrap();

    probe.hook_calls();
    tx.commit().await.unwrap();
    assert_eq!(probe.hook_calls(), ["after_commit Outer,Kept,Nested"]);
    assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (2, 3));
    assert_eq!(probe.hot().len(), 3);
}

async fn a_closed_pool_is_an_error<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    db.pool.close().await;
    let error = writer.begin().await.unwrap_err();
    assert!(matches!(error, Error::Database { source: sqlx::Error::PoolClosed, .. }), "{error}");
}

on_every_database!(
    events_and_business_are_committed_together,
    a_rollback_undoes_both,
    a_dropped_transaction_is_rolled_back_even_outside_the_runtime,
    flush_reports_the_outcome_of_each_event,
    invalid_input_is_refused_and_loses_no_other_event,
    a_panicking_hook_changes_nothing,
    a_transaction_without_events_commits,
    a_closure_commits_or_rolls_back,
    a_transaction_can_move_between_tasks,
    a_savepoint_rollback_discards_its_events,
    a_closed_pool_is_an_error,
);
