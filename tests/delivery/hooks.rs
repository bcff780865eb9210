//! Interceptors and hooks around an event.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::config::Unroutable;
use outbox::event::Status;
use outbox::listener::{Delivery, EventInterceptor, ListenerRegistry};
use outbox::metrics::{DeliveryTopic, Lane, MetricsExporter, VerdictKind};
use outbox::tx::WriterHook;
use outbox::{EventEnvelope, ListenerError, ListenerResult};
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_database};

use crate::harness::{first_row, insert_due, manual_poll, recording_listeners, with_status, write};

#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

struct RecordingInterceptor(&'static str, Trace);

impl EventInterceptor for RecordingInterceptor {
    fn before(&self, _: &EventEnvelope, attempts: u32) -> ListenerResult {
        self.1.note(format!("before {} {attempts}", self.0));
        if self.0 == "refuses" { Err("refused".into()) } else { Ok(()) }
    }

    fn after(&self, _: &EventEnvelope, error: Option<&ListenerError>) -> ListenerResult {
        self.1.note(format!("after {} {error:?}", self.0, error = error.map(ToString::to_string)));
        Err("ignored".into())
    }
}

async fn interceptors_run_in_order_and_unwind_in_reverse<DB: TestDatabase>(db: Fresh<DB>) {
    let trace = Trace::default();
    let own = trace.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |_: Delivery| {
        own.note("listener");
        async {}
    });
    let outbox = manual_poll(&db, registry)
        .intercept(RecordingInterceptor("one", trace.clone()))
        .intercept(RecordingInterceptor("two", trace.clone()))
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    let expected = ["before one 0", "before two 0", "listener", "after two None", "after one None"];
    assert_eq!(trace.lines(), expected);
}

async fn a_refusing_interceptor_fails_the_attempt_and_skips_the_rest<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let (trace, received) = (Trace::default(), CallLog::default());
    let outbox = manual_poll(&db, recording_listeners(&received))
        .intercept(RecordingInterceptor("one", trace.clone()))
        .intercept(RecordingInterceptor("refuses", trace.clone()))
        .intercept(RecordingInterceptor("three", trace.clone()))
        .max_attempts(1)
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    let expected = ["before one 0", "before refuses 0", "after one Some(\"refused\")"];
    assert_eq!(trace.lines(), expected);
    assert_eq!(
        (received.count(), first_row(&db, &outbox).await.last_error.as_deref()),
        (0, Some("refused"))
    );
}

/// There is no listener call to intercept, but an audit must see that the event became dead.
async fn interceptors_are_called_for_unroutable_events<DB: TestDatabase>(db: Fresh<DB>) {
    let (trace, received) = (Trace::default(), CallLog::default());
    let builder = manual_poll(&db, recording_listeners(&received)).unroutable(Unroutable::Dead);
    let builder = builder.intercept(RecordingInterceptor("one", trace.clone()));
    let builder = builder.intercept(RecordingInterceptor("refuses", trace.clone()));
    let outbox =
        builder.intercept(RecordingInterceptor("three", trace.clone())).start().await.unwrap();
    let error = "no listener handles `Unknown` of aggregate `Order`";
    let expected = [
        "before one 0".to_owned(),
        "before refuses 0".to_owned(),
        format!("after one Some({error:?})"),
    ];
    // Through the hot queue and the cold queue.
    write(&outbox, &[event("Unknown")]).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    assert_eq!(trace.lines(), expected);
    insert_due(&db, &outbox, &["Unknown"]).await;
    outbox.poll_once().await.unwrap();
    eventually("both are dead", async || with_status(&db, 3).await == 2).await;
    assert_eq!(trace.lines()[3..], expected);
    let row = first_row(&db, &outbox).await;
    assert_eq!(
        (row.attempts, row.last_error.as_deref()),
        (0, Some(error)),
        "a refusal has no effect"
    );
}

async fn a_panicking_interceptor_does_not_affect_other_events<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received))
        .workers(1)
        .before(|event, attempts| {
            assert!(event.event_type() != "A" || attempts > 0, "an interceptor panics");
            Ok(())
        })
        .after(|event, _| {
            assert!(event.event_type() != "B", "an interceptor panics");
            Ok(())
        })
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A"), event("B"), event("C")]).await;
    eventually("all are delivered", async || with_status(&db, 1).await == 3).await;
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.attempts), (Status::Done, 1));
    let error = row.last_error.unwrap();
    assert!(error.starts_with("an interceptor panicked at tests/delivery/hooks.rs:"), "{error}");
    assert!(error.ends_with(": an interceptor panics"), "{error}");
}

struct PanickingHook;

impl WriterHook for PanickingHook {
    fn before_write(
        &self,
        events: Vec<EventEnvelope>,
    ) -> Result<Vec<EventEnvelope>, Box<dyn Error + Send + Sync>> {
        assert!(events[0].event_type() != "B", "a hook panics");
        Ok(events)
    }

    fn after_commit(&self, _: &[EventEnvelope]) {
        panic!("a hook panics");
    }
}

async fn a_panicking_hook_does_not_stop_delivery<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox =
        manual_poll(&db, recording_listeners(&received)).hook(PanickingHook).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    assert!(tx.write(event("B")).is_err(), "only this event is refused");
    tx.write(event("A")).unwrap();
    tx.commit().await.unwrap();
    received.wait_for(1).await;
    outbox.drained().await.unwrap();
    assert_eq!(received.types(), ["A"]);
}

struct PanickingMetrics;

impl MetricsExporter for PanickingMetrics {
    fn enqueued(&self, _: Lane, _: usize) {
        panic!("an exporter panics");
    }

    fn dispatched(&self, _: DeliveryTopic<'_>, _: VerdictKind, _: Duration) {
        panic!("an exporter panics");
    }

    fn claimed(&self, _: usize, _: Duration) {
        panic!("an exporter panics");
    }

    fn recorded(&self, _: usize, _: usize, _: Duration) {
        panic!("an exporter panics");
    }
}

async fn a_panicking_metrics_exporter_does_not_stop_delivery<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received))
        .metrics(PanickingMetrics)
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A")]).await;
    insert_due(&db, &outbox, &["B"]).await;
    outbox.poll_once().await.unwrap();
    received.wait_for(2).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(2);
    assert_eq!(with_status(&db, 1).await, 2);
}

on_every_database!(
    a_panicking_metrics_exporter_does_not_stop_delivery,
    interceptors_run_in_order_and_unwind_in_reverse,
    a_refusing_interceptor_fails_the_attempt_and_skips_the_rest,
    interceptors_are_called_for_unroutable_events,
    a_panicking_interceptor_does_not_affect_other_events,
    a_panicking_hook_does_not_stop_delivery,
);
