//! Duplicate event ids in transactions that stay open: other writers must not wait for them.

use std::time::{Duration, Instant};

use outbox::EventEnvelope;
use outbox_runtime::store::StoreOf;
use outbox_runtime::write::{Tx, WriteOutcome, Writer};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, on_every_server};

use super::write::writer;

/// The longest time a writer may take whose events are unrelated to the open transaction.
const MAX_WAIT: Duration = Duration::from_secs(1);

const IS_MARIADB: &str = "SELECT VERSION() LIKE '%MariaDB%'";

/// Returns an event with an id chosen by the caller. It is the first id that sorts after every generated one.
fn event_with_id(id: &str) -> EventEnvelope {
    EventEnvelope::builder("Chosen").event_id(id).payload_json("{}").build().unwrap()
}

/// Commits events with generated ids from other transactions, one and several at a time.
async fn other_writers_commit<DB: TestDatabase>(writer: &Writer<DB>, case: &str) {
    let mut longest = Duration::ZERO;
    for count in [1, 1, 2, 9, 70, 1] {
        let begun = Instant::now();
        let commit = writer.transaction(async |tx| {
            tx.write_all((0..count).map(|_| event("Other")))?;
            Ok::<_, outbox_runtime::Error>(())
        });
        let committed = tokio::time::timeout(MAX_WAIT, commit).await;
        committed.unwrap_or_else(|_| panic!("{case}: writing {count} events was blocked")).unwrap();
        longest = longest.max(begun.elapsed());
    }
    println!("{} {case}: other writers took {longest:?} at most", DB::SHORT_NAME);
}

/// Waits until a session waits for a lock.
async fn wait_for_a_lock_wait<DB: TestDatabase>(db: &Fresh<DB>) {
    // MySQL refreshes this table only if it was not queried for 100 ms.
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    let waits = async {
        while db.number(DB::LOCK_WAITS).await == 0 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.expect("a session waits for a lock");
}

/// Commits, in another transaction, a caller-chosen id that sorts directly after `id`.
async fn commit_the_next_id<DB: TestDatabase>(writer: &Writer<DB>, id: &str) {
    let next = event_with_id(&format!("{id}-{}", rand::random::<u32>()));
    let committed = tokio::time::timeout(MAX_WAIT, commit(writer, next)).await;
    committed.expect("it does not wait for the transaction with the preceding id");
}

async fn commit<DB: TestDatabase>(writer: &Writer<DB>, event: EventEnvelope) {
    let mut tx = writer.begin().await.unwrap();
    tx.write(event).unwrap();
    tx.commit().await.unwrap();
}

async fn flushed<DB: TestDatabase>(
    writer: &Writer<DB>,
    events: Vec<EventEnvelope>,
) -> (Tx<DB>, Vec<WriteOutcome>) {
    let mut tx = writer.begin().await.unwrap();
    tx.write_all(events).unwrap();
    let written = tx.flush().await.unwrap();
    (tx, written.iter().map(|written| written.outcome).collect())
}

async fn a_duplicate_id_does_not_block_other_writers<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    commit(&writer, event_with_id("invoice-7")).await;

    let (tx, outcomes) = flushed(&writer, vec![event_with_id("invoice-7")]).await;
    assert_eq!(outcomes, [WriteOutcome::Duplicate]);
    other_writers_commit(&writer, "flush of a duplicate").await;
    commit_the_next_id(&writer, "invoice-7").await;
    tx.commit().await.unwrap();

    let several =
        vec![event("A"), event_with_id("invoice-7"), event_with_id("invoice-8"), event("B")];
    let (tx, outcomes) = flushed(&writer, several).await;
    let (new, duplicate) = (WriteOutcome::Inserted, WriteOutcome::Duplicate);
    assert_eq!(outcomes, [new, duplicate, new, new]);
    other_writers_commit(&writer, "flush of several").await;
    commit_the_next_id(&writer, "invoice-7").await;
    tx.commit().await.unwrap();

    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, event_with_id("invoice-7")).await.unwrap().unwrap();
    assert!(!receipt.is_new());
    other_writers_commit(&writer, "write_in of a duplicate").await;
    commit_the_next_id(&writer, "invoice-7").await;
    tx.commit().await.unwrap();
}

async fn an_event_written_twice_does_not_block_other_writers<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    let twice = event("A");
    let (mut tx, _) = flushed(&writer, vec![twice.clone()]).await;
    tx.write(twice.clone()).unwrap();
    assert_eq!(tx.flush().await.unwrap()[0].outcome, WriteOutcome::Duplicate);
    other_writers_commit(&writer, "twice in one transaction").await;
    tx.commit().await.unwrap();

    let last = event("A");
    commit(&writer, last.clone()).await;
    let (tx, outcomes) = flushed(&writer, vec![last]).await;
    assert_eq!(outcomes, [WriteOutcome::Duplicate]);
    other_writers_commit(&writer, "twice in two transactions").await;
    tx.commit().await.unwrap();
}

/// Two transactions write the same new id: the second waits for the first, and no other writer waits for either.
async fn a_writer_waiting_for_an_id_does_not_block_other_writers<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    for (round, commits) in [(1, true), (2, false), (3, true)] {
        let id = format!("invoice-{round}");
        // As a single event, and among others.
        let events = |first: &'static str| match round {
            3 => vec![event(first), event_with_id(&id), event(first)],
            _ => vec![event_with_id(&id)],
        };
        let (first, _) = flushed(&writer, events("First")).await;
        let (second, events) = (writer.clone(), events("Second"));
        let second = tokio::spawn(async move { flushed(&second, events).await });
        wait_for_a_lock_wait(&db).await;
        other_writers_commit(&writer, "while one waits for the id of another").await;
        if commits {
            first.commit().await.unwrap();
        } else {
            first.rollback().await.unwrap();
        }
        let (tx, outcomes) = second.await.unwrap();
        let expected = if commits { WriteOutcome::Duplicate } else { WriteOutcome::Inserted };
        assert_eq!(outcomes[outcomes.len() / 2], expected);
        other_writers_commit(&writer, "after the outcome is known").await;
        tx.commit().await.unwrap();
        let rows = format!("SELECT COUNT(*) FROM outbox_event WHERE event_id = '{id}'");
        assert_eq!(db.number(rows).await, 1);
    }
}

/// A snapshot that is older than the row does not show it.
async fn a_row_hidden_by_the_snapshot_is_a_duplicate<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    // As a single event, and in one statement with seven new ones.
    for new in [0, 7] {
        let mut tx = writer.begin().await.unwrap();
        super::write::read::<DB>(&mut tx).await;
        let id = format!("invoice-{new}");
        commit(&writer, event_with_id(&id)).await;
        tx.write_all((0..new).map(|_| event("A"))).unwrap();
        tx.write(event_with_id(&id)).unwrap();
        let written = tx.flush().await.unwrap();
        let (last, others) = written.split_last().unwrap();
        assert_eq!(last.outcome, WriteOutcome::Duplicate);
        assert!(others.iter().all(|written| written.outcome == WriteOutcome::Inserted));
        let first = format!("SELECT sequence FROM outbox_event WHERE event_id = '{id}'");
        assert_eq!(last.sequence, db.number(first).await);
        // MySQL itself keeps the end of the table locked after a failed INSERT until the transaction ends,
        // and other writers wait for it.
        let releases_lock = DB::SHORT_NAME != "mysql" || db.number(IS_MARIADB).await == 1;
        if releases_lock {
            other_writers_commit(&writer, "after a hidden duplicate").await;
        }
        tx.commit().await.unwrap();
        if !releases_lock {
            other_writers_commit(&writer, "after the end of a hidden duplicate").await;
        }
    }
    assert_eq!((&db, writer.store()).count().await, 9 + 2 * (1 + 1 + 2 + 9 + 70 + 1));
}

on_every_server!(
    a_duplicate_id_does_not_block_other_writers,
    an_event_written_twice_does_not_block_other_writers,
    a_writer_waiting_for_an_id_does_not_block_other_writers,
    a_row_hidden_by_the_snapshot_is_a_duplicate,
);
