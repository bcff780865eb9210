//! `outbox tail`, also with transactions that commit late.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout};
use std::time::Duration;

use outbox::EventEnvelope;
use outbox_runtime::event::Recipient;
use outbox_runtime::store::{InitialState, NewRow};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, on_every_database};

use crate::program::Program;

const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A running `outbox tail`.
struct Tail {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Tail {
    fn start<DB: TestDatabase>(db: &Fresh<DB>, more: &str) -> Self {
        let line = format!("tail --json --interval 50ms {more}");
        let mut child = Program::on(db).command(&line).spawn().unwrap();
        let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
        Self { child, lines }
    }

    /// Returns the sequence and the type of the next event.
    async fn next(&mut self) -> (i64, String) {
        let row = self.line().await;
        assert_eq!(row["payload"], serde_json::Value::Null);
        (row["sequence"].as_i64().unwrap(), row["event_type"].as_str().unwrap().to_owned())
    }

    /// Returns the next document.
    async fn line(&mut self) -> serde_json::Value {
        let mut lines = self.lines.take().expect("one reader");
        let read = tokio::task::spawn_blocking(move || (lines.next(), lines));
        let read = tokio::time::timeout(LINE_TIMEOUT, read).await.expect("no line in time");
        let (line, lines) = read.unwrap();
        self.lines = Some(lines);
        let line = line.expect("the output has ended").unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Inserts a row with a given sequence, as if a transaction had taken it earlier.
async fn insert_at<DB: TestDatabase>(db: &Fresh<DB>, sequence: i64, event_type: &str) {
    let now = DB::NOW;
    db.run(format!(
        "INSERT INTO outbox_event (sequence, event_id, event_type, payload, available_at, created_at) \
         VALUES ({sequence}, 'e{sequence}', '{event_type}', '{{}}', {now}, {now})"
    ))
    .await;
}

async fn rows_are_shown_in_order_of_commit<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    insert_at(&db, 10, "Old").await;
    insert_at(&db, 20, "Old").await;
    let mut tail = Tail::start(&db, "-n 1");
    assert_eq!(tail.next().await, (20, "Old".to_owned()));
    for (sequence, event_type) in
        [(30, "New"), (25, "Late"), (15, "Later"), (5, "Last"), (31, "New")]
    {
        insert_at(&db, sequence, event_type).await;
        assert_eq!(tail.next().await, (sequence, event_type.to_owned()));
    }
}

/// Also an event far behind the head, whose payload has several lines.
async fn existing_events_are_shown_first<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rare = EventEnvelope::json("Rare", "{\r\n  \"a\": 1\n}").unwrap();
    let sequence = (&db, &store).insert_due(&[rare]).await[0].sequence;
    db.fill("A", 0, 1, 10_001).await;
    let mut tail = Tail::start(&db, "--type Rare --payload");
    let shown = tail.line().await;
    assert_eq!(shown["sequence"], sequence);
    assert_eq!(shown["payload"], serde_json::json!({"a": 1}));
}

async fn only_matching_events_are_shown<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let mut tail = Tail::start(&db, "--type B");
    (&db, &store).insert_due(&[event("A"), event("B"), event("A"), event("B")]).await;
    assert_eq!(tail.next().await.1, "B");
    assert_eq!(tail.next().await.1, "B");
}

async fn no_event_is_shown_twice<DB: TestDatabase>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("First")]).await;
    let mut tail = Tail::start(&db, "-n 1");
    assert_eq!(tail.next().await.1, "First");
    // More than a page, and queried while they are being inserted.
    let events: Vec<_> = (0..1_200).map(|_| event("A")).collect();
    let mut inserted: Vec<i64> = Vec::new();
    for chunk in events.chunks(100) {
        inserted.extend(rows.insert_due(chunk).await.into_iter().map(|row| row.sequence));
    }
    let mut seen = Vec::new();
    while seen.len() < inserted.len() {
        seen.push(tail.next().await.0);
    }
    assert_eq!(seen, inserted);
    insert_at(&db, 1_000_000, "End").await;
    assert_eq!(tail.next().await.1, "End");
}

/// Not on SQLite, which has a single writer and so no late commits.
async fn a_late_commit_is_shown<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        return;
    }
    let store = db.store().await;
    (&db, &store).insert_due(&[event("First")]).await;
    let (late, hasty) = (event("Late"), event("Hasty"));
    let row =
        |envelope| [NewRow { envelope, state: InitialState::Due, recipient: &Recipient::Unnamed }];
    let mut slow = db.pool.begin().await.unwrap();
    let low = store.insert(&mut slow, &row(&late)).await.unwrap()[0].sequence;
    // It starts while the transaction is open.
    let mut tail = Tail::start(&db, "");
    assert_eq!(tail.next().await.1, "First");
    let high = (&db, &store).insert_due(&[hasty]).await[0].sequence;
    assert!(low < high);
    assert_eq!(tail.next().await, (high, "Hasty".to_owned()));
    slow.commit().await.unwrap();
    assert_eq!(tail.next().await, (low, "Late".to_owned()));
}

on_every_database!(
    existing_events_are_shown_first,
    rows_are_shown_in_order_of_commit,
    only_matching_events_are_shown,
    no_event_is_shown_twice,
    a_late_commit_is_shown,
);
