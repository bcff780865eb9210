//! The log lines about deliveries, as `tracing_subscriber::fmt` prints them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry, Timeout};
use outbox::{Builder, EventEnvelope, ListenerError, Outbox, Outcome, Tx};
use outbox_tests::{
    CallLog, FormattedLog, Fresh, TestDatabase, event, eventually, field_names,
    in_one_thread_on_every_database,
};
use tokio::sync::Semaphore;
use tracing::Level;

use crate::harness::{HOUR, blocking_listener, manual_poll, with_status, write};

/// A listener for each way to fail: an error, a panic and a time-out.
fn failing() -> ListenerRegistry {
    let short = ListenerOptions::new().timeout(Timeout::After(Duration::from_millis(20)));
    ListenerRegistry::new()
        .register_for("Order", "A", |_: Delivery| async { Err::<(), _>("the printer burns") })
        .register_for("Order", "B", |delivery: Delivery| async move {
            assert!(delivery.envelope().event_type() != "B", "this is a test");
        })
        .register_with(short, "Order", "C", |_: Delivery| std::future::pending::<()>())
}

/// Asserts that a line names a listener of this file, and no field twice.
fn assert_line(line: &str, event: &EventEnvelope) {
    let names = field_names(line);
    let distinct: HashSet<&str> = names.iter().copied().collect();
    assert_eq!(distinct.len(), names.len(), "a field occurs twice: {line}");
    let listener = "listener=\"a manually registered listener (";
    let listener = line.contains(listener) && line.contains("delivery_log.rs:");
    assert!(listener, "no listener: {line}");
    assert!(line.contains(&format!("event_id={}", event.event_id())), "no event: {line}");
    assert!(line.contains(&format!("event_type=\"{}\"", event.event_type())), "no type: {line}");
}

/// Returns the single line about an event.
fn line_about(log: &FormattedLog, event: &EventEnvelope) -> String {
    let lines = log.with(event.event_id().as_str());
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_line(line, event);
    line.clone()
}

const REASONS: [(&str, &str); 3] = [
    ("A", "error=\"the printer burns\""),
    ("B", "error=\"the listener panicked at tests/delivery/delivery_log.rs:24: this is a test\""),
    ("C", "error=\"the listener took longer than 20ms\""),
];

/// Delivers an event of each type once, and returns the log and the events.
async fn deliver<DB: TestDatabase>(
    db: &Fresh<DB>,
    level: Level,
    options: impl Fn(Builder<DB>) -> Builder<DB>,
) -> (FormattedLog, Vec<EventEnvelope>) {
    let (log, _log) = FormattedLog::capture(level);
    let outbox = options(manual_poll(db, failing())).start().await.unwrap();
    let events: Vec<EventEnvelope> = REASONS.iter().map(|(name, _)| order(name)).collect();
    write(&outbox, &events).await;
    outbox.drained().await.unwrap();
    outbox.shutdown().await.unwrap();
    (log, events)
}

fn order(event: &str) -> EventEnvelope {
    let event = EventEnvelope::builder(event).aggregate_type("Order").aggregate_id("7");
    event.tenant("acme").payload_json("{}").build().unwrap()
}

async fn a_retry_names_the_listener_and_the_event_once<DB: TestDatabase>(db: Fresh<DB>) {
    let options = |outbox: Builder<DB>| outbox.retry_base(HOUR).retry_max(HOUR);
    let (log, events) = deliver(&db, Level::INFO, options).await;
    for (event, (_, reason)) in events.iter().zip(REASONS) {
        let line = line_about(&log, event);
        assert!(line.trim_start().starts_with("INFO outbox_runtime::dispatch::report: "), "{line}");
        assert!(line.contains("the listener failed; the event will be retried"), "{line}");
        let where_from =
            "aggregate_type=\"Order\" aggregate_id=\"7\" tenant_id=\"acme\" attempts=1";
        assert!(line.contains(where_from) && line.contains(reason), "{line}");
    }
}

async fn a_dead_letter_names_the_listener_and_the_event_once<DB: TestDatabase>(db: Fresh<DB>) {
    let options = |outbox: Builder<DB>| outbox.max_attempts(1).redact_tenant();
    // With its spans and without them: a filter by level disables those first.
    for level in [Level::DEBUG, Level::ERROR] {
        let (log, events) = deliver(&db, level, options).await;
        for (event, (_, reason)) in events.iter().zip(REASONS) {
            let line = line_about(&log, event);
            assert!(line.contains("ERROR outbox_runtime::metrics::meter: "), "{line}");
            assert!(line.contains("the event is dead"), "{line}");
            assert!(line.contains("aggregate_id=\"7\"") && line.contains(reason), "{line}");
            assert!(!line.contains("acme"), "{line}");
            assert!(!line.contains("subscription"), "the listener is unnamed: {line}");
        }
    }
}

/// No listener has been called then, but one was to be.
async fn an_event_that_lost_its_owners_names_its_listener<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::ERROR);
    db.store().await;
    db.fill("A", 0, 1, 1).await;
    db.run("UPDATE outbox_event SET takeovers = 5, locked_by = 'x'").await;
    let outbox = manual_poll(&db, failing()).start().await.unwrap();
    outbox.drained().await.unwrap();
    let lines = log.with("owner lost");
    assert!(lines.len() == 1 && lines[0].contains("delivery_log.rs:"), "{lines:?}");
    outbox.shutdown().await.unwrap();
}

/// Whether its listener was called or not.
async fn a_dead_letter_of_a_subscription_names_it<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::ERROR);
    db.store().await;
    db.fill("A", 0, 1, 1).await;
    let lost = "UPDATE outbox_event SET takeovers = 5, locked_by = 'x', subscription = 'billing'";
    db.run(lost).await;
    let options = ListenerOptions::new().name("billing");
    let registry =
        ListenerRegistry::new().register_with(options, "Order", "A", |_: Delivery| async {
            Err::<(), _>(ListenerError::permanent("closed"))
        });
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    let event = order("A");
    write(&outbox, std::slice::from_ref(&event)).await;
    outbox.drained().await.unwrap();
    let (called, lost) = (line_about(&log, &event), log.with("owner lost"));
    let [lost] = lost.as_slice() else { panic!("{lost:?}") };
    for line in [&called, lost] {
        assert!(line.contains("subscription=\"billing\""), "{line}");
    }
    outbox.shutdown().await.unwrap();
}

async fn the_failure_of_an_interceptor_names_the_listener<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::INFO);
    let registry = ListenerRegistry::new().register_for("Order", "A", |_: Delivery| async {});
    let outbox = manual_poll(&db, registry)
        .after(|_, _| Err("the audit is closed".into()))
        .after(|_, _| panic!("this is a test"))
        .start()
        .await
        .unwrap();
    let event = event("A");
    write(&outbox, std::slice::from_ref(&event)).await;
    outbox.drained().await.unwrap();
    let lines = log.with(event.event_id().as_str());
    lines.iter().for_each(|line| assert_line(line, &event));
    let [panicked, failed] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        panicked.contains("error=\"an interceptor panicked at tests/delivery/delivery_log.rs:"),
        "{panicked}"
    );
    assert!(failed.contains("an interceptor failed after the call"), "{failed}");
    assert!(failed.contains("error=\"the audit is closed\""), "{failed}");
    outbox.shutdown().await.unwrap();
}

/// Returns an outbox with a call that has begun and does not end, and the event of that call.
async fn with_running_call<DB: TestDatabase>(
    db: &Fresh<DB>,
    received: &CallLog,
    options: impl Fn(Builder<DB>) -> Builder<DB>,
) -> (Outbox<DB>, EventEnvelope) {
    let registry = blocking_listener(received, &Arc::new(Semaphore::new(0)));
    let outbox = options(manual_poll(db, registry)).start().await.unwrap();
    let event = event("A");
    write(&outbox, std::slice::from_ref(&event)).await;
    received.wait_for(1).await;
    (outbox, event)
}

async fn a_shutdown_that_cancels_a_call_is_logged<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::WARN);
    let received = CallLog::default();
    let options = |outbox: Builder<DB>| outbox.drain_timeout(Duration::from_millis(20));
    let (outbox, event) = with_running_call(&db, &received, options).await;
    outbox.shutdown().await.unwrap();
    let lines = log.with(event.event_id().as_str());
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        line.contains("the shutdown cancelled a call of the listener; the event is released"),
        "{line}"
    );
    assert!(line.contains("lengthen `drain_timeout`") && line.contains("ran_for="), "{line}");
    assert!(line.contains("harness.rs:") && line.contains("event_type=\"A\""), "{line}");
    assert_eq!(with_status(&db, 0).await, 1, "it is released");
}

async fn a_dropped_outbox_that_cancels_a_call_is_logged<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::WARN);
    let received = CallLog::default();
    let (outbox, event) = with_running_call(&db, &received, |outbox| outbox).await;
    drop(outbox);
    let lines = || log.with(event.event_id().as_str());
    eventually("it is logged", async || !lines().is_empty()).await;
    let line = lines().remove(0);
    assert!(line.contains("the outbox was dropped without a shutdown"), "{line}");
    assert!(line.contains("when its lease expires; call `shutdown`"), "{line}");
}

async fn a_call_longer_than_a_lease_names_its_listener<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::WARN);
    let received = CallLog::default();
    let options = |outbox: Builder<DB>| outbox.lease(Duration::from_secs(1));
    let (outbox, event) = with_running_call(&db, &received, options).await;
    let lines = || log.with("a listener has been running for longer than a lease");
    eventually("it is logged", async || !lines().is_empty()).await;
    let line = lines().remove(0);
    assert!(line.contains("harness.rs:") && line.contains("running_for=1."), "{line}");
    assert!(line.contains(event.event_id().as_str()), "{line}");
    drop(outbox);
}

/// A listener whose transaction gets no answer to its commit: it ends its own session.
async fn an_unknown_commit_names_the_listener<DB: TestDatabase>(db: Fresh<DB>) {
    let end_session = match DB::SHORT_NAME {
        "postgres" => "SELECT pg_terminate_backend(pg_backend_pid())",
        "mysql" => "KILL CONNECTION_ID()",
        // There is no session that could end.
        _ => return,
    };
    let (log, _log) = FormattedLog::capture(Level::WARN);
    let registry = ListenerRegistry::new().register_in_tx(
        ListenerOptions::new(),
        "Order",
        "A",
        move |_: Delivery, tx: &mut Tx<DB>| {
            Box::pin(async move {
                let _ = DB::run(tx, sqlx::SqlSafeStr::into_sql_str(end_session)).await;
                Ok(Outcome::Done)
            })
        },
    );
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    let event = event("A");
    write(&outbox, std::slice::from_ref(&event)).await;
    eventually("it is logged", async || !log.with("it is unknown whether").is_empty()).await;
    let lines = log.with("it is unknown whether the listener's transaction was committed");
    assert_line(&lines[0], &event);
    outbox.shutdown().await.unwrap();
}

async fn an_open_breaker_names_the_listener_once<DB: TestDatabase>(db: Fresh<DB>) {
    let (log, _log) = FormattedLog::capture(Level::INFO);
    let registry = ListenerRegistry::new().register_for("Order", "A", |_: Delivery| async {
        Err::<(), _>(ListenerError::unreachable("the mail server is away"))
    });
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is logged", async || !log.with("circuit breaker opened").is_empty()).await;
    let line = log.with("circuit breaker opened").remove(0);
    let names = field_names(&line);
    assert_eq!(names, ["listener", "failures", "pause", "error"], "{line}");
    outbox.shutdown().await.unwrap();
}

in_one_thread_on_every_database!(
    a_retry_names_the_listener_and_the_event_once,
    a_dead_letter_names_the_listener_and_the_event_once,
    an_event_that_lost_its_owners_names_its_listener,
    a_dead_letter_of_a_subscription_names_it,
    the_failure_of_an_interceptor_names_the_listener,
    a_shutdown_that_cancels_a_call_is_logged,
    a_dropped_outbox_that_cancels_a_call_is_logged,
    a_call_longer_than_a_lease_names_its_listener,
    an_unknown_commit_names_the_listener,
    an_open_breaker_names_the_listener_once,
);
