//! The due time of an event, as its listener sees it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use outbox::config::Backoff;
use outbox::event::Status;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{EventEnvelope, ListenerError, Meta, Outbox};
use outbox_runtime::store::StoreOf;
use outbox_tests::{Fresh, TestDatabase, event, eventually, on_every_database};

use crate::harness::{manual_poll, write};

/// Records the due time of the event of each call.
#[derive(Clone, Default)]
struct DueTimes(Arc<Mutex<Vec<SystemTime>>>);

impl DueTimes {
    /// Returns a listener for event `A` that fails on the first call if `fails_first` is set.
    fn listener(&self, fails_first: bool) -> ListenerRegistry {
        let due = self.clone();
        ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
            let envelope = delivery.envelope();
            let meta = Meta::new(envelope.clone(), delivery.attempts());
            assert_eq!(meta.available_at(), envelope.available_at());
            due.0.lock().unwrap().push(meta.available_at());
            let fails = fails_first && delivery.attempts() == 0;
            async move { if fails { Err(ListenerError::from("not yet")) } else { Ok(()) } }
        })
    }

    async fn wait_for(&self, calls: usize) -> Vec<SystemTime> {
        eventually("it is called", async || self.0.lock().unwrap().len() == calls).await;
        self.0.lock().unwrap().clone()
    }
}

/// Waits until the row of an event has a status, and returns its due time.
async fn row_due<DB: TestDatabase>(
    outbox: &Outbox<DB>,
    event: &EventEnvelope,
    status: Status,
) -> SystemTime {
    let id = event.event_id();
    let row = async || outbox.store().find_event(id.as_str()).await.unwrap().remove(0);
    eventually("it has the status", async || row().await.status == status).await;
    row().await.available_at.unwrap()
}

async fn a_delayed_event_is_due_at_the_requested_time<DB: TestDatabase>(db: Fresh<DB>) {
    let due = DueTimes::default();
    let outbox = manual_poll(&db, due.listener(false)).start().await.unwrap();
    let at = SystemTime::now() + Duration::from_millis(300);
    let builder = EventEnvelope::builder("A").aggregate_type("Order").payload_json("{}");
    let delayed = builder.deliver_at(at).build().unwrap();
    write(&outbox, std::slice::from_ref(&delayed)).await;
    let seen = due.wait_for(1).await[0];
    assert_eq!(seen, delayed.available_at());
    let cut = at.duration_since(seen).unwrap();
    assert!(cut < Duration::from_micros(1), "{seen:?} and {at:?}");
}

async fn an_event_without_delay_is_due_when_inserted<DB: TestDatabase>(db: Fresh<DB>) {
    let due = DueTimes::default();
    let outbox = manual_poll(&db, due.listener(false)).start().await.unwrap();
    outbox.pause().unwrap();
    let late = EventEnvelope::builder("A")
        .aggregate_type("Order")
        .occurred_at(SystemTime::UNIX_EPOCH)
        .payload_json("{}")
        .build()
        .unwrap();
    let store = outbox.store();
    outbox_tests::TestTable::insert_due(&(&db, store), std::slice::from_ref(&late)).await;
    let inserted = row_due(&outbox, &late, Status::New).await;
    outbox.resume().unwrap();
    assert_eq!(due.wait_for(1).await, [inserted]);
    // On the hot path, the due time comes from this process's clock.
    let hot = event("A");
    write(&outbox, std::slice::from_ref(&hot)).await;
    assert_eq!(due.wait_for(2).await[1], hot.available_at());
}

async fn a_retry_is_due_at_the_end_of_its_backoff<DB: TestDatabase>(db: Fresh<DB>) {
    let due = DueTimes::default();
    let second = Duration::from_secs(1);
    let policy = Backoff::new(second * 2, second * 2).unwrap();
    let outbox = manual_poll(&db, due.listener(true)).retry_policy(policy).start().await.unwrap();
    let failing = event("A");
    write(&outbox, std::slice::from_ref(&failing)).await;
    let retried = row_due(&outbox, &failing, Status::Retry).await;
    assert_eq!(due.wait_for(2).await, [failing.available_at(), retried]);
}

on_every_database!(
    a_delayed_event_is_due_at_the_requested_time,
    an_event_without_delay_is_due_when_inserted,
    a_retry_is_due_at_the_end_of_its_backoff,
);
