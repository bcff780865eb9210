//! Ids that exist already, in transactions that stay open: other writers must not wait for them.

use std::time::{Duration, Instant};

use outbox::EventEnvelope;
use outbox_runtime::write::{Tx, WriteOutcome, Writer};
use outbox_tests::{Fresh, Rows, TestDatabase, event, on_every_server};

use super::write::writer;

/// How long a writer may take whose events have nothing to do with the open transaction.
const PROMPT: Duration = Duration::from_secs(1);

const IS_MARIADB: &str = "SELECT VERSION() LIKE '%MariaDB%'";

/// An event under an id of the caller's. It sorts after every generated id, and it is the first one that
/// does.
fn chosen(id: &str) -> EventEnvelope {
    EventEnvelope::builder("Chosen").event_id(id).payload_json("{}").build().unwrap()
}

/// Other writers commit events with generated ids, alone and several at a time.
async fn others_commit<DB: TestDatabase>(writer: &Writer<DB>, case: &str) {
    let mut longest = Duration::ZERO;
    for count in [1, 1, 2, 9, 70, 1] {
        let begun = Instant::now();
        let commit = writer.transaction(async |tx| {
            tx.write_all((0..count).map(|_| event("Other")))?;
            Ok::<_, outbox_runtime::Error>(())
        });
        let committed = tokio::time::timeout(PROMPT, commit).await;
        committed.unwrap_or_else(|_| panic!("{case}: {count} events wait")).unwrap();
        longest = longest.max(begun.elapsed());
    }
    println!("{} {case}: other writers took {longest:?} at most", DB::SHORT_NAME);
}

/// Waits until a session waits for a lock.
async fn a_session_waits<DB: TestDatabase>(db: &Fresh<DB>) {
    // MySQL looks again only if it has not been asked for a tenth of a second.
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    let waits = async {
        while db.number(DB::LOCK_WAITS).await == 0 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.expect("a session waits for a lock");
}

/// Another writer commits an id of the caller's that comes right after `id`.
async fn the_next_id_is_committed<DB: TestDatabase>(writer: &Writer<DB>, id: &str) {
    let next = chosen(&format!("{id}-{}", rand::random::<u32>()));
    let committed = tokio::time::timeout(PROMPT, commit(writer, next)).await;
    committed.expect("it does not wait for the one before");
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

async fn a_duplicate_stops_no_other_writer<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    commit(&writer, chosen("invoice-7")).await;

    let (tx, outcomes) = flushed(&writer, vec![chosen("invoice-7")]).await;
    assert_eq!(outcomes, [WriteOutcome::Duplicate]);
    others_commit(&writer, "flush of a duplicate").await;
    the_next_id_is_committed(&writer, "invoice-7").await;
    tx.commit().await.unwrap();

    let several = vec![event("A"), chosen("invoice-7"), chosen("invoice-8"), event("B")];
    let (tx, outcomes) = flushed(&writer, several).await;
    let (new, duplicate) = (WriteOutcome::Inserted, WriteOutcome::Duplicate);
    assert_eq!(outcomes, [new, duplicate, new, new]);
    others_commit(&writer, "flush of several").await;
    the_next_id_is_committed(&writer, "invoice-7").await;
    tx.commit().await.unwrap();

    let mut tx = db.pool.begin().await.unwrap();
    let receipt = writer.write_in(&mut tx, chosen("invoice-7")).await.unwrap().unwrap();
    assert!(!receipt.is_new());
    others_commit(&writer, "write_in of a duplicate").await;
    the_next_id_is_committed(&writer, "invoice-7").await;
    tx.commit().await.unwrap();
}

async fn an_event_written_twice_stops_no_other_writer<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    let twice = event("A");
    let (mut tx, _) = flushed(&writer, vec![twice.clone()]).await;
    tx.write(twice.clone()).unwrap();
    assert_eq!(tx.flush().await.unwrap()[0].outcome, WriteOutcome::Duplicate);
    others_commit(&writer, "twice in one transaction").await;
    tx.commit().await.unwrap();

    let last = event("A");
    commit(&writer, last.clone()).await;
    let (tx, outcomes) = flushed(&writer, vec![last]).await;
    assert_eq!(outcomes, [WriteOutcome::Duplicate]);
    others_commit(&writer, "twice in two transactions").await;
    tx.commit().await.unwrap();
}

/// Two transactions write the same new id: the second has to wait for the first, and no other for it.
async fn a_writer_that_waits_for_an_id_stops_no_other<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    for (round, commits) in [(1, true), (2, false), (3, true)] {
        let id = format!("invoice-{round}");
        // Alone, and among others.
        let events = |first: &'static str| match round {
            3 => vec![event(first), chosen(&id), event(first)],
            _ => vec![chosen(&id)],
        };
        let (first, _) = flushed(&writer, events("First")).await;
        let (second, events) = (writer.clone(), events("Second"));
        let second = tokio::spawn(async move { flushed(&second, events).await });
        a_session_waits(&db).await;
        others_commit(&writer, "while one waits for the id of another").await;
        if commits {
            first.commit().await.unwrap();
        } else {
            first.rollback().await.unwrap();
        }
        let (tx, outcomes) = second.await.unwrap();
        let expected = if commits { WriteOutcome::Duplicate } else { WriteOutcome::Inserted };
        assert_eq!(outcomes[outcomes.len() / 2], expected);
        others_commit(&writer, "after it was told").await;
        tx.commit().await.unwrap();
        let rows = format!("SELECT COUNT(*) FROM outbox_event WHERE event_id = '{id}'");
        assert_eq!(db.number(rows).await, 1);
    }
}

/// In a snapshot that is older than the row, it is not there to be read.
async fn a_row_that_the_snapshot_hides_is_a_duplicate<DB: TestDatabase>(db: Fresh<DB>) {
    let (writer, _) = writer(&db, 0).await;
    // Alone, and in one statement with seven that are new.
    for new in [0, 7] {
        let mut tx = writer.begin().await.unwrap();
        super::write::read::<DB>(&mut tx).await;
        let id = format!("invoice-{new}");
        commit(&writer, chosen(&id)).await;
        tx.write_all((0..new).map(|_| event("A"))).unwrap();
        tx.write(chosen(&id)).unwrap();
        let written = tx.flush().await.unwrap();
        let (last, others) = written.split_last().unwrap();
        assert_eq!(last.outcome, WriteOutcome::Duplicate);
        assert!(others.iter().all(|written| written.outcome == WriteOutcome::Inserted));
        let first = format!("SELECT sequence FROM outbox_event WHERE event_id = '{id}'");
        assert_eq!(last.sequence, db.number(first).await);
        // MySQL itself keeps the table's end locked for a transaction in which an INSERT has failed, and
        // other writers wait for its end.
        let frees = DB::SHORT_NAME != "mysql" || db.number(IS_MARIADB).await == 1;
        if frees {
            others_commit(&writer, "after a hidden duplicate").await;
        }
        tx.commit().await.unwrap();
        if !frees {
            others_commit(&writer, "after the end of a hidden duplicate").await;
        }
    }
    assert_eq!((&db, writer.store()).count().await, 9 + 2 * (1 + 1 + 2 + 9 + 70 + 1));
}

on_every_server!(
    a_duplicate_stops_no_other_writer,
    an_event_written_twice_stops_no_other_writer,
    a_writer_that_waits_for_an_id_stops_no_other,
    a_row_that_the_snapshot_hides_is_a_duplicate,
);
