//! Rows inserted by another framework.

use std::time::{Duration, SystemTime};

use outbox::event::Status;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_tests::{CallLog, Fresh, TestDatabase, eventually, on_every_database};

use crate::harness::{first_row, manual_poll, with_status};

/// Inserts a row of event `A` as another program does, with these headers and this due time.
async fn insert_foreign_row<DB: TestDatabase>(
    db: &Fresh<DB>,
    id: &str,
    headers: &str,
    available_at: &str,
) {
    db.run(format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, headers, status, \
         attempts, available_at, created_at) \
         VALUES ('{id}', 'A', 'Order', '{{}}', {headers}, 0, 0, {available_at}, {now})",
        now = DB::NOW
    ))
    .await;
}

/// Returns a listener for event `A` that records its calls, and a value for each.
fn recording_listener<T: Send + 'static>(
    received: &CallLog,
    note: impl Fn(&Delivery) -> T + Send + Sync + 'static,
) -> (ListenerRegistry, std::sync::mpsc::Receiver<T>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let received = received.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        let _ = sender.send(note(&delivery));
        received.record(&delivery);
        async {}
    });
    (registry, receiver)
}

async fn a_null_header_is_omitted<DB: TestDatabase>(db: Fresh<DB>) {
    db.store().await;
    insert_foreign_row(&db, "1", r#"'{"trace":null,"reply-to":"billing"}'"#, DB::NOW).await;
    let received = CallLog::default();
    let (registry, headers) = recording_listener(&received, |delivery| {
        let headers = delivery.envelope().headers().iter();
        headers.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    });
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    eventually("it is done or dead", async || {
        with_status(&db, 1).await + with_status(&db, 3).await == 1
    })
    .await;
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.last_error), (Status::Done, None));
    assert_eq!(headers.recv().unwrap(), ["reply-to=billing"]);
}

/// Times before 1970 that a database can store, as SQL; the last one is the earliest.
trait EarlyTimes: TestDatabase {
    const TIMES: &'static [&'static str];

    /// A query that returns 1 if this server can store further times, and these times.
    const SOME_SERVERS: Option<(&'static str, &'static [&'static str])> = None;
}

impl EarlyTimes for sqlx::Sqlite {
    const TIMES: &'static [&'static str] =
        &["-1", "-62135596800000000", "-62167219200000000", "-9223372036854775808"];
}

impl EarlyTimes for sqlx::Postgres {
    const TIMES: &'static [&'static str] = &[
        "'1969-12-31 23:59:59.999999+00'",
        "'0001-01-01 00:00:00+00'",
        "'0001-01-01 00:00:00+00 BC'",
        "'4714-11-24 00:00:00+00 BC'",
        "'-infinity'",
    ];
}

impl EarlyTimes for sqlx::MySql {
    const TIMES: &'static [&'static str] =
        &["'1969-12-31 23:59:59.999999'", "'0001-01-01 00:00:00'"];
    // Go's driver stores its zero time as the latter.
    const SOME_SERVERS: Option<(&'static str, &'static [&'static str])> = Some((
        "SELECT CAST(VERSION() LIKE '%MariaDB%' AS SIGNED)",
        &["'0000-01-01 00:00:00'", "'0000-00-00 00:00:00'"],
    ));
}

async fn a_row_that_was_due_before_1970_is_delivered<DB: EarlyTimes>(db: Fresh<DB>) {
    db.store().await;
    let mut times = DB::TIMES.to_vec();
    if let Some((can_store, more)) = DB::SOME_SERVERS
        && db.number(can_store).await == 1
    {
        times.extend(more);
    }
    for (index, time) in times.iter().enumerate() {
        insert_foreign_row(&db, &format!("due-{index}"), "NULL", time).await;
    }
    let received = CallLog::default();
    let (registry, due) =
        recording_listener(&received, |delivery| delivery.envelope().available_at());
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    received.wait_for(times.len()).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(times.len());
    assert_eq!(with_status(&db, 1).await, i64::try_from(times.len()).unwrap());
    // Times the database can compute with are read unchanged; for others the event's own time is used.
    let due: Vec<SystemTime> = due.try_iter().collect();
    let known = [Duration::from_micros(1), Duration::from_secs(62_135_596_800)];
    for before_1970 in known {
        assert!(due.contains(&(SystemTime::UNIX_EPOCH - before_1970)), "{before_1970:?}: {due:?}");
    }
}

on_every_database!(a_null_header_is_omitted, a_row_that_was_due_before_1970_is_delivered,);
