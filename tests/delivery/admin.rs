//! The admin handle of a running outbox.

use std::sync::Arc;
use std::time::Duration;

use outbox::EventEnvelope;
use outbox::config::{FailedAttempt, Failure, Retry, RetryPolicy};
use outbox::event::Status;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_database};
use tokio::sync::Semaphore;

use crate::harness::{
    HOUR, blocking_listener, manual_poll, recording_listeners, with_status, write,
};

/// The poller sleeps for an hour, so only the change can have woken it.
async fn an_event_that_is_made_due_is_delivered_at_once<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let outbox = manual_poll(&db, recording_listeners(&received)).start().await.unwrap();
    let delayed = EventEnvelope::builder("A").aggregate_type("Order").event_id("later");
    let delayed = delayed.payload_json("{}").deliver_after(HOUR).build().unwrap();
    write(&outbox, &[delayed]).await;
    assert_eq!(received.count(), 0);
    outbox.admin().make_due("later").await.unwrap();
    received.wait_for(1).await;
    outbox.shutdown().await.unwrap();
}

/// A node whose listener hangs renews its lease, so no other node would ever deliver the event.
async fn a_hung_event_is_released_to_another_node<DB: TestDatabase>(db: Fresh<DB>) {
    let (hung, received) = (CallLog::default(), CallLog::default());
    let never = Arc::new(Semaphore::new(0));
    let stuck = manual_poll(&db, blocking_listener(&hung, &never));
    let stuck = stuck.drain_timeout(Duration::from_millis(50)).start().await.unwrap();
    write(&stuck, &[event("A")]).await;
    hung.wait_for(1).await;
    stuck.pause().unwrap();
    let other = manual_poll(&db, blocking_listener(&received, &Arc::new(Semaphore::new(1))));
    let other = other.start().await.unwrap();
    let id = stuck.admin().list(&Default::default()).await.unwrap()[0].event_id.clone();
    assert!(other.admin().make_due(&id).await.is_err(), "it is claimed");
    other.admin().release(&id).await.unwrap();
    received.wait_for(1).await;
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    stuck.shutdown().await.unwrap();
    assert_eq!(with_status(&db, 1).await, 1, "the late result of the first node does not apply");
    other.shutdown().await.unwrap();
}

/// Gives up what it knows to be hopeless, and retries the rest.
struct ByError;

impl RetryPolicy for ByError {
    fn retry(&self, attempt: &FailedAttempt<'_>) -> Retry {
        match attempt.failure {
            Failure::Error(error) if error.to_string() == "bounced" => Retry::GiveUp,
            _ if attempt.event.event_type() == "B" => Retry::After(HOUR),
            _ => Retry::After(Duration::ZERO),
        }
    }
}

async fn a_retry_policy_sees_the_error_and_the_event<DB: TestDatabase>(db: Fresh<DB>) {
    let registry =
        [("A", "bounced"), ("B", "busy")].into_iter().fold(
            ListenerRegistry::new(),
            |registry, (name, error)| {
                registry.register_for("Order", name, move |_: Delivery| async move {
                    Err::<(), _>(error)
                })
            },
        );
    let outbox = manual_poll(&db, registry).retry_policy(ByError).start().await.unwrap();
    write(&outbox, &[event("A"), event("B")]).await;
    eventually("one is dead, one waits", async || {
        with_status(&db, 3).await == 1 && with_status(&db, 2).await == 1
    })
    .await;
    let rows = outbox.admin().list(&Default::default()).await.unwrap();
    let dead = rows.iter().find(|row| row.status == Status::Dead).unwrap();
    assert_eq!((dead.event_type.as_str(), dead.attempts), ("A", 1));
    outbox.shutdown().await.unwrap();
}

on_every_database!(
    an_event_that_is_made_due_is_delivered_at_once,
    a_hung_event_is_released_to_another_node,
    a_retry_policy_sees_the_error_and_the_event,
);
