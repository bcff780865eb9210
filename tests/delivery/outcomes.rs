//! The verdict for each outcome of a listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outbox::config::{Backoff, FailedAttempt, Retry, RetryPolicy};
use outbox::event::Status;
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
use outbox::metrics::VerdictKind;
use outbox::{ListenerError, ListenerResult, Outcome};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};

use crate::harness::{
    CountingMetrics, HOUR, first_row, insert_due, manual_poll, recording_listeners, with_status,
    write,
};

/// Returns the seconds until the first row is due.
async fn due_in<DB: TestDatabase>(db: &Fresh<DB>) -> f64 {
    let store = db.store().await;
    let next = store.peek(None, None).await.unwrap();
    next.next_in.unwrap().as_secs_f64()
}

fn failing(received: &CallLog, options: ListenerOptions) -> ListenerRegistry {
    let received = received.clone();
    ListenerRegistry::new().register_with(options, "Order", "A", move |delivery: Delivery| {
        received.record(&delivery);
        async { Err::<(), _>("no luck") }
    })
}

async fn failures_are_retried_by_the_policy_and_then_become_dead<DB: TestDatabase>(db: Fresh<DB>) {
    let (received, counted) = (CallLog::default(), CountingMetrics::default());
    // Time passes by aging the rows, and the jitter is constant.
    let policy = Backoff::new(HOUR, 3 * HOUR).unwrap().with_random(|| 0.5);
    let outbox = manual_poll(&db, failing(&received, ListenerOptions::new()))
        .retry_policy(policy)
        .max_attempts(4)
        .metrics(counted.clone())
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A")]).await;
    for (attempts, hours) in [(1, 1), (2, 2), (3, 3)] {
        received.wait_for(attempts).await;
        outbox.drained().await.unwrap();
        let row = first_row(&db, &outbox).await;
        assert_eq!((row.status, row.attempts), (Status::Retry, attempts as i64));
        assert_eq!((row.last_error.as_deref(), row.locked_by), (Some("no luck"), None));
        let expected = f64::from(hours) * 3_600.0;
        assert!((expected - 5.0..=expected).contains(&due_in(&db).await), "{}", due_in(&db).await);
        assert_eq!(outbox.poll_once().await.unwrap(), 0, "it is not due yet");
        (&db, outbox.store()).age(HOUR * hours).await;
        outbox.poll_once().await.unwrap();
    }
    received.wait_for(4).await;
    outbox.drained().await.unwrap();
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.attempts, row.ended), (Status::Dead, 4, true));
    let attempts: Vec<u32> = received.calls().iter().map(|call| call.attempts).collect();
    assert_eq!(attempts, [0, 1, 2, 3]);
    let results: Vec<VerdictKind> =
        counted.results().into_iter().map(|(_, result)| result).collect();
    let (failure, dead) = (VerdictKind::Retry, VerdictKind::Dead);
    assert_eq!(results, [failure, failure, failure, dead]);
}

async fn retries_do_not_wait_for_the_poll_interval<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let options = ListenerOptions::new()
        .max_attempts(4)
        .retry_base(Duration::from_millis(60))
        .retry_max(Duration::from_millis(100));
    let outbox = manual_poll(&db, failing(&received, options)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    let calls = received.wait_for(4).await;
    for pair in calls.windows(2) {
        let gap = pair[1].at - pair[0].at;
        assert!(gap >= Duration::from_millis(30), "{gap:?}");
    }
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
}

async fn a_listener_can_defer_an_event<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let recorded = received.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        async { Ok::<_, ListenerError>(Outcome::RetryAfter(HOUR)) }
    });
    let outbox = manual_poll(&db, registry).max_attempts(2).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    for times in 1..=5 {
        received.wait_for(times).await;
        outbox.drained().await.unwrap();
        let row = first_row(&db, &outbox).await;
        assert_eq!((row.status, row.attempts, row.last_error), (Status::Retry, 0, None));
        (&db, outbox.store()).age(HOUR).await;
        outbox.poll_once().await.unwrap();
    }
}

async fn the_kind_of_error_decides_the_verdict<DB: TestDatabase>(db: Fresh<DB>) {
    let registry = ListenerRegistry::new()
        .register_for("Order", "Permanent", |_: Delivery| async {
            Err::<(), _>(ListenerError::permanent("the mailbox is gone"))
        })
        .register_for("Order", "Later", |_: Delivery| async {
            Err::<(), _>(ListenerError::retry_after(2 * HOUR, "not now"))
        })
        .register_for("Order", "Zero", |_: Delivery| async {
            Err::<(), _>(ListenerError::retry_after(Duration::ZERO, "at once"))
        })
        .register_for("Order", "Centuries", |_: Delivery| async {
            Ok::<_, ListenerError>(Outcome::RetryAfter(Duration::MAX))
        })
        .register_for("Order", "Panic", |delivery: Delivery| async move {
            assert!(delivery.attempts() > 0, "a listener panics");
        });
    let outbox = manual_poll(&db, registry).max_attempts(3).start().await.unwrap();
    for name in ["Permanent", "Later", "Zero", "Centuries", "Panic"] {
        write(&outbox, &[event(name)]).await;
    }
    eventually("the event that is retried immediately is dead", async || {
        with_status(&db, 3).await == 2
    })
    .await;
    eventually("the event whose listener panicked is delivered", async || {
        with_status(&db, 1).await == 1
    })
    .await;
    let rows = (&db, outbox.store());
    let states = async |sequence: i64| {
        let row = rows.row(sequence).await;
        (row.status, row.attempts, row.last_error)
    };
    let first = db.number("SELECT MIN(sequence) FROM outbox_event").await;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(states(first).await, (Status::Dead, 1, text("the mailbox is gone")));
    assert_eq!(states(first + 1).await, (Status::Retry, 1, text("not now")));
    assert_eq!(states(first + 2).await, (Status::Dead, 3, text("at once")));
    assert_eq!(states(first + 3).await, (Status::Retry, 0, None));
    let (status, attempts, error) = states(first + 4).await;
    assert_eq!((status, attempts), (Status::Done, 1));
    assert!(error.unwrap().starts_with("the listener panicked at tests/delivery/outcomes.rs:"));
}

async fn a_payload_that_cannot_be_decoded_is_a_failure<DB: TestDatabase>(db: Fresh<DB>) {
    let registry =
        ListenerRegistry::new().register_for("Order", "A", |delivery: Delivery| async move {
            let numbers: Vec<u8> = delivery.payload()?;
            drop(numbers);
            Ok::<(), ListenerError>(())
        });
    let outbox = manual_poll(&db, registry).max_attempts(1).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    let error = first_row(&db, &outbox).await.last_error.unwrap();
    assert!(error.contains("does not fit") && !error.contains("1.5"), "{error}");
}

async fn unstorable_error_texts_do_not_affect_other_events<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let registry =
        recording_listeners(&received).register_for("Order", "BadError", |_: Delivery| async {
            ListenerResult::<()>::Err(format!("\0\u{1b}[31m {}", "ü".repeat(100_000)).into())
        });
    let outbox = manual_poll(&db, registry).max_attempts(1).start().await.unwrap();
    write(&outbox, &[event("BadError"), event("A"), event("BadError"), event("B")]).await;
    received.wait_for(2).await;
    outbox.drained().await.unwrap();
    assert_eq!((with_status(&db, 1).await, with_status(&db, 3).await), (2, 2));
    let error = first_row(&db, &outbox).await.last_error.unwrap();
    assert_eq!(error.chars().count(), 4_000);
    assert!(error.ends_with("üü…"), "{error}");
}

async fn listeners_see_the_number_of_failed_attempts<DB: TestDatabase>(db: Fresh<DB>) {
    let calls = Arc::new(AtomicU32::new(0));
    let received = CallLog::default();
    let (recorded, counter) = (received.clone(), Arc::clone(&calls));
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        let call = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            match call {
                0 => Ok(Outcome::RetryAfter(Duration::from_millis(50))),
                1 => Err(ListenerError::retry_after(Duration::from_millis(50), "once")),
                2 => Ok(Outcome::RetryAfter(Duration::from_millis(50))),
                _ => Ok(Outcome::Done),
            }
        }
    });
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    insert_due(&db, &outbox, &["A"]).await;
    outbox.poll_once().await.unwrap();
    let calls = received.wait_for(4).await;
    let attempts: Vec<u32> = calls.iter().map(|call| call.attempts).collect();
    assert_eq!(attempts, [0, 0, 1, 1]);
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
}

/// An error whose `Display` panics.
#[derive(Debug)]
struct PanickingError;

impl std::fmt::Display for PanickingError {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("an error panics");
    }
}

impl std::error::Error for PanickingError {}

struct PanickingPolicy;

impl RetryPolicy for PanickingPolicy {
    fn retry(&self, _: &FailedAttempt<'_>) -> Retry {
        panic!("a policy panics");
    }
}

async fn a_panic_while_handling_a_failure_spends_an_attempt<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let recorded = received.clone();
    let registry = failing(&received, ListenerOptions::new().concurrency(1)).register_with(
        ListenerOptions::new().concurrency(1).max_attempts(1),
        "Order",
        "PanickingError",
        move |delivery: Delivery| {
            recorded.record(&delivery);
            async { Err::<(), _>(PanickingError) }
        },
    );
    let outbox = manual_poll(&db, registry)
        .retry_policy(PanickingPolicy)
        .max_attempts(2)
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A"), event("PanickingError"), event("PanickingError")]).await;
    eventually("all are dead", async || {
        (&db, outbox.store()).age(Duration::from_secs(2)).await;
        outbox.poll_once().await.unwrap();
        with_status(&db, 3).await == 3
    })
    .await;
    assert_eq!(received.count(), 4, "two calls for A, one for each other");
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    a_panic_while_handling_a_failure_spends_an_attempt,
    failures_are_retried_by_the_policy_and_then_become_dead,
    retries_do_not_wait_for_the_poll_interval,
    a_listener_can_defer_an_event,
    the_kind_of_error_decides_the_verdict,
    a_payload_that_cannot_be_decoded_is_a_failure,
    unstorable_error_texts_do_not_affect_other_events,
    listeners_see_the_number_of_failed_attempts,
);
