//! Listeners know when their event was due.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use outbox::{
    Backoff, Delivery, EventEnvelope, ListenerError, ListenerRegistry, Meta, Outbox, Status,
};
use outbox_tests::{Fresh, TestDatabase, event, eventually, on_every_database};

use crate::harness::{quiet, write};

/// When the event of each call was due, as its listener saw it.
#[derive(Clone, Default)]
struct Due(Arc<Mutex<Vec<SystemTime>>>);

impl Due {
    /// A listener of event `A` that fails the first time if it is told to.
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

    async fn reach(&self, calls: usize) -> Vec<SystemTime> {
        eventually("it is called", async || self.0.lock().unwrap().len() == calls).await;
        self.0.lock().unwrap().clone()
    }
}

/// When the row of an event is due, once it has a status.
async fn row_due<DB: TestDatabase>(
    outbox: &Outbox<DB>,
    event: &EventEnvelope,
    status: Status,
) -> SystemTime {
    let id = event.event_id();
    let row = async || outbox.store().find_event(id.as_str()).await.unwrap().unwrap();
    eventually("it has the status", async || row().await.status == status).await;
    row().await.available_at.unwrap()
}

async fn a_delayed_event_was_due_at_the_time_that_was_asked_for<DB: TestDatabase>(db: Fresh<DB>) {
    let due = Due::default();
    let outbox = quiet(&db, due.listener(false)).start().await.unwrap();
    let at = SystemTime::now() + Duration::from_millis(300);
    let builder = EventEnvelope::builder("A").aggregate_type("Order").payload_json("{}");
    let delayed = builder.deliver_at(at).build().unwrap();
    write(&outbox, std::slice::from_ref(&delayed)).await;
    let seen = due.reach(1).await[0];
    assert_eq!(seen, delayed.available_at());
    let cut = at.duration_since(seen).unwrap();
    assert!(cut < Duration::from_micros(1), "{seen:?} and {at:?}");
}

async fn an_event_without_a_delay_was_due_when_it_was_inserted<DB: TestDatabase>(db: Fresh<DB>) {
    let due = Due::default();
    let outbox = quiet(&db, due.listener(false)).start().await.unwrap();
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
    assert_eq!(due.reach(1).await, [inserted]);
    // Straight from the commit, it is known by this process's clock.
    let hot = event("A");
    write(&outbox, std::slice::from_ref(&hot)).await;
    assert_eq!(due.reach(2).await[1], hot.available_at());
}

async fn a_retry_was_due_at_the_end_of_its_back_off<DB: TestDatabase>(db: Fresh<DB>) {
    let due = Due::default();
    let second = Duration::from_secs(1);
    let policy = Backoff::new(second * 2, second * 2).unwrap();
    let outbox = quiet(&db, due.listener(true)).retry_policy(policy).start().await.unwrap();
    let failing = event("A");
    write(&outbox, std::slice::from_ref(&failing)).await;
    let retried = row_due(&outbox, &failing, Status::Retry).await;
    assert_eq!(due.reach(2).await, [failing.available_at(), retried]);
}

on_every_database!(
    a_delayed_event_was_due_at_the_time_that_was_asked_for,
    an_event_without_a_delay_was_due_when_it_was_inserted,
    a_retry_was_due_at_the_end_of_its_back_off,
);
