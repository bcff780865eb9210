//! The log lines about a node: its start, what it takes over, the loops that fail, and what waits in the table.

use std::time::Duration;

use outbox::config::Mode;
use outbox::listener::ListenerRegistry;
use outbox::{EventType, Outbox};
use outbox_tests::{
    CallLog, FormattedLog, Fresh, TestDatabase, event, eventually, field_names,
    in_one_thread_on_every_database,
};
use tracing::Level;

use crate::harness::{manual_poll, recording_listeners};

async fn a_start_is_logged_once<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::INFO);
    let outbox = outbox::builder(db.pool.clone()).node_name("alpha");
    let outbox = outbox.listeners(recording_listeners(&CallLog::default()));
    outbox.start().await.unwrap().shutdown().await.unwrap();
    let lines = log.with("the outbox has started");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("INFO"), "{line}");
    assert!(line.contains("table=outbox_event mode=Full node=\"alpha-"), "{line}");
    let database = format!("listeners=3 database=\"{}\"", DB::NAME);
    assert!(line.contains(&database), "{line}");
}

async fn the_start_of_a_writer_is_logged_without_a_node<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::INFO);
    let writer = outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).start().await.unwrap();
    writer.shutdown().await.unwrap();
    let lines = log.with("the outbox has started");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(field_names(line), ["table", "mode", "database"], "{line}");
    assert!(line.contains("mode=WriterOnly"), "{line}");
}

async fn a_start_that_fails_is_not_logged<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::INFO);
    manual_poll(&db, ListenerRegistry::new()).start().await.unwrap_err();
    assert_eq!(log.with("the outbox has started"), Vec::<String>::new());
}

async fn a_take_over_is_logged_once_for_a_batch<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::INFO);
    db.store().await;
    db.fill("A", 0, 1, 5).await;
    // Text of a row can be anything.
    db.run("UPDATE outbox_event SET locked_by = 'old\tnode' WHERE event_id <> 'e5'").await;
    db.run("UPDATE outbox_event SET locked_by = 'other' WHERE event_id = 'e4'").await;
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    received.wait_for(5).await;
    // A second batch soon after is counted with the next line.
    db.fill("A", 0, 11, 2).await;
    db.run("UPDATE outbox_event SET locked_by = 'other' WHERE status = 0").await;
    outbox.drained().await.unwrap();
    received.assert_each_once(7);
    let lines = log.with("were taken over");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("INFO") && line.contains("events=4"), "{line}");
    assert!(line.contains("previous_owner=\"old\u{fffd}node, other\""), "{line}");
    outbox.shutdown().await.unwrap();
}

/// Starts an outbox that polls often.
async fn polling<DB: TestDatabase>(db: &Fresh<DB>, received: &CallLog) -> Outbox<DB> {
    let outbox = outbox::builder(db.pool.clone()).listeners(recording_listeners(received));
    outbox.poll_interval(Duration::from_millis(50)).start().await.unwrap()
}

const FAILED: &str = "claiming due events failed; it will be tried again";

async fn a_loop_that_fails_says_what_failed_and_when_it_works_again<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let (log, _log) = FormattedLog::capture(Level::INFO);
    let outbox = polling(&db, &CallLog::default()).await;
    db.run("ALTER TABLE outbox_event RENAME TO outbox_away").await;
    eventually("it fails", async || !log.with(FAILED).is_empty()).await;
    assert_eq!(log.with("works again"), Vec::<String>::new());
    db.run("ALTER TABLE outbox_away RENAME TO outbox_event").await;
    let recovered = "claiming due events works again";
    eventually("it works again", async || !log.with(recovered).is_empty()).await;
    outbox.shutdown().await.unwrap();
    let (failed, recovered) = (log.with(FAILED), log.with(recovered));
    assert_eq!((failed.len(), recovered.len()), (1, 1), "{failed:?} {recovered:?}");
    assert!(failed[0].contains("ERROR") && failed[0].contains("service=\"poller\""), "{failed:?}");
    assert!(recovered[0].contains("INFO"), "{recovered:?}");
}

/// An event type of this program, for which it has no listener.
#[derive(EventType)]
enum Declared {
    NotLinked,
    #[outbox(no_listener)]
    ForOthers,
}

async fn unroutable_events_are_logged_by_type<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::INFO);
    db.store().await;
    db.fill("A", 0, 1, 2).await;
    db.fill("NotLinked", 0, 11, 3).await;
    db.fill("NotLinked", 2, 21, 1).await;
    for (number, name) in ["ForOthers", "U1", "U2", "U3", "U4", "U5", "U6"].iter().enumerate() {
        db.fill(name, 0, 31 + number as u64, 1).await;
    }
    db.run("UPDATE outbox_event SET aggregate_type = NULL WHERE event_type = 'U1'").await;
    db.run("UPDATE outbox_event SET event_type = 'U\t2' WHERE event_type = 'U2'").await;
    // A process that handles an event claims it within seconds, and this node may be the first to see it.
    let fresh = format!(
        "INSERT INTO outbox_event (event_id, event_type, payload, available_at, created_at) \
         VALUES ('fresh', 'Fresh', '{{}}', {now}, {now})",
        now = DB::NOW
    );
    db.run(fresh).await;
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    let lines = || log.with("unroutable events are pending");
    eventually("they are logged", async || lines().len() == 2).await;
    let (lines, warned) = (lines(), |line: &str| line.trim_start().starts_with("WARN"));
    let [unlinked, others] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(warned(unlinked) && warned(others), "{lines:?}");
    assert!(unlinked.contains("events=4 types=\"Order/NotLinked\""), "{unlinked}");
    assert!(
        unlinked.contains("is the crate with its listeners linked (`use handlers as _;`)?"),
        "{unlinked}"
    );
    let types = "events=7 types=\"Order/ForOthers, Order/U\u{fffd}2, Order/U3, Order/U4, Order/U5 and 2 more\"";
    assert!(others.contains(types), "{others}");
    assert!(others.contains("another program probably has their listeners"), "{others}");
    outbox.shutdown().await.unwrap();
}

async fn a_dropped_transaction_with_events_is_logged<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::DEBUG);
    let outbox = outbox::builder(db.pool.clone()).mode(Mode::WriterOnly).start().await.unwrap();
    let dropped = || log.with("a transaction was dropped with events that were never committed");
    let with_event = async || {
        let mut tx = outbox.begin().await.unwrap();
        tx.write(event("A")).unwrap();
        tx
    };
    outbox.begin().await.unwrap();
    with_event().await.rollback().await.unwrap();
    with_event().await.commit().await.unwrap();
    let tx = with_event().await;
    let panicking = std::panic::AssertUnwindSafe(move || {
        let _tx = tx;
        panic!("this is a test");
    });
    std::panic::catch_unwind(panicking).unwrap_err();
    assert_eq!(dropped(), Vec::<String>::new());
    let mut tx = with_event().await;
    tx.flush().await.unwrap();
    tx.write(event("B")).unwrap();
    drop(tx);
    let lines = dropped();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("DEBUG") && line.contains("they are rolled back"), "{line}");
    assert!(line.contains("table=outbox_event events=2"), "{line}");
    outbox.shutdown().await.unwrap();
}

in_one_thread_on_every_database!(
    a_start_is_logged_once,
    the_start_of_a_writer_is_logged_without_a_node,
    a_start_that_fails_is_not_logged,
    a_take_over_is_logged_once_for_a_batch,
    a_loop_that_fails_says_what_failed_and_when_it_works_again,
    unroutable_events_are_logged_by_type,
    a_dropped_transaction_with_events_is_logged,
);

/// A turn of this loop lasts as long as its connection, which would be half an hour.
#[tokio::test]
async fn listening_for_notifications_again_is_logged() {
    let Some(db) = Fresh::<sqlx::Postgres>::new().await else { return };
    let (log, _log) = FormattedLog::capture(Level::INFO);
    let outbox = manual_poll(&db, recording_listeners(&CallLog::default())).notify();
    let outbox = outbox.start().await.unwrap();
    let listening = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND query LIKE 'LISTEN%'";
    eventually("it listens", async || db.number(listening).await == 1).await;
    let server = db.existing("postgres").await;
    let allow = async |allowed: bool| {
        let name = db.name();
        server.run(format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}")).await;
    };
    allow(false).await;
    db.run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
         WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    )
    .await;
    let failed = "listening for notifications of other nodes failed; it will be tried again";
    eventually("it fails", async || !log.with(failed).is_empty()).await;
    allow(true).await;
    let works = "listening for notifications of other nodes works again";
    eventually("it works again", async || !log.with(works).is_empty()).await;
    outbox.shutdown().await.unwrap();
}
