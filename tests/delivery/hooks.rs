//! Interceptors and hooks around an event.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{
    Delivery, DispatchResult, EventEnvelope, EventInterceptor, ListenerError, ListenerRegistry,
    MetricsExporter, Result, Status, Unroutable, Way, WriterHook,
};
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_database};

use crate::harness::{first_row, insert_due, listening, quiet, with_status, write};

#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

struct Named(&'static str, Diary);

impl EventInterceptor for Named {
    fn before(&self, _: &EventEnvelope, attempts: u32) -> Result {
        self.1.note(format!("before {} {attempts}", self.0));
        if self.0 == "refuses" { Err("refused".into()) } else { Ok(()) }
    }

    fn after(&self, _: &EventEnvelope, error: Option<&ListenerError>) -> Result {
        self.1.note(format!("after {} {error:?}", self.0, error = error.map(ToString::to_string)));
        Err("nobody minds".into())
    }
}

async fn interceptors_go_in_and_out_in_order<DB: TestDatabase>(db: Fresh<DB>) {
    let diary = Diary::default();
    let own = diary.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |_: Delivery| {
        own.note("listener");
        async {}
    });
    let outbox = quiet(&db, registry)
        .intercept(Named("one", diary.clone()))
        .intercept(Named("two", diary.clone()))
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    let expected = ["before one 0", "before two 0", "listener", "after two None", "after one None"];
    assert_eq!(diary.lines(), expected);
}

async fn a_refusal_is_a_failure_and_only_those_who_went_in_come_out<DB: TestDatabase>(
    db: Fresh<DB>,
) {
    let (diary, received) = (Diary::default(), CallLog::default());
    let outbox = quiet(&db, listening(&received))
        .intercept(Named("one", diary.clone()))
        .intercept(Named("refuses", diary.clone()))
        .intercept(Named("three", diary.clone()))
        .max_attempts(1)
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    let expected = ["before one 0", "before refuses 0", "after one Some(\"refused\")"];
    assert_eq!(diary.lines(), expected);
    assert_eq!(
        (received.count(), first_row(&db, &outbox).await.last_error.as_deref()),
        (0, Some("refused"))
    );
}

/// Without a listener there is nothing to stand around, but an audit must hear of the event's end.
async fn interceptors_hear_of_what_nobody_listens_to<DB: TestDatabase>(db: Fresh<DB>) {
    let (diary, received) = (Diary::default(), CallLog::default());
    let builder = quiet(&db, listening(&received)).unroutable(Unroutable::Dead);
    let builder = builder.intercept(Named("one", diary.clone()));
    let builder = builder.intercept(Named("refuses", diary.clone()));
    let outbox = builder.intercept(Named("three", diary.clone())).start().await.unwrap();
    let error = "nobody listens to `Unknown` of aggregate `Order`";
    let expected = [
        "before one 0".to_owned(),
        "before refuses 0".to_owned(),
        format!("after one Some({error:?})"),
    ];
    // Hot and cold.
    write(&outbox, &[event("Unknown")]).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    assert_eq!(diary.lines(), expected);
    insert_due(&db, &outbox, &["Unknown"]).await;
    outbox.poll_once().await.unwrap();
    eventually("both are dead", async || with_status(&db, 3).await == 2).await;
    assert_eq!(diary.lines()[3..], expected);
    let row = first_row(&db, &outbox).await;
    assert_eq!(
        (row.attempts, row.last_error.as_deref()),
        (0, Some(error)),
        "a refusal is too late"
    );
}

async fn panics_around_a_listener_harm_nobody<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = quiet(&db, listening(&received))
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
    let error = row.last_error.as_deref();
    assert_eq!(
        (row.status, row.attempts, error),
        (Status::Done, 1, Some("an interceptor panicked"))
    );
}

struct PanickingHook;

impl WriterHook for PanickingHook {
    fn before_write(
        &self,
        events: Vec<EventEnvelope>,
    ) -> std::result::Result<Vec<EventEnvelope>, Box<dyn Error + Send + Sync>> {
        assert!(events[0].event_type() != "B", "a hook panics");
        Ok(events)
    }

    fn after_commit(&self, _: &[EventEnvelope]) {
        panic!("a hook panics");
    }
}

async fn a_panicking_hook_stands_in_nobodys_way<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = quiet(&db, listening(&received)).hook(PanickingHook).start().await.unwrap();
    let mut tx = outbox.begin().await.unwrap();
    assert!(tx.write(event("B")).is_err(), "refused, and nothing else");
    tx.write(event("A")).unwrap();
    tx.commit().await.unwrap();
    received.wait_for(1).await;
    outbox.drained().await.unwrap();
    assert_eq!(received.types(), ["A"]);
}

struct PanickingMetrics;

impl MetricsExporter for PanickingMetrics {
    fn enqueued(&self, _: Way, _: usize) {
        panic!("an exporter panics");
    }

    fn dispatched(&self, _: &str, _: DispatchResult, _: Duration) {
        panic!("an exporter panics");
    }

    fn claimed(&self, _: usize, _: Duration) {
        panic!("an exporter panics");
    }

    fn recorded(&self, _: usize, _: usize, _: Duration) {
        panic!("an exporter panics");
    }
}

async fn a_panicking_exporter_stands_in_nobodys_way<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = quiet(&db, listening(&received)).metrics(PanickingMetrics).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    insert_due(&db, &outbox, &["B"]).await;
    outbox.poll_once().await.unwrap();
    received.wait_for(2).await;
    outbox.drained().await.unwrap();
    received.assert_each_once(2);
    assert_eq!(with_status(&db, 1).await, 2);
}

on_every_database!(
    a_panicking_exporter_stands_in_nobodys_way,
    interceptors_go_in_and_out_in_order,
    a_refusal_is_a_failure_and_only_those_who_went_in_come_out,
    interceptors_hear_of_what_nobody_listens_to,
    panics_around_a_listener_harm_nobody,
    a_panicking_hook_stands_in_nobodys_way,
);
