use std::sync::Arc;
use std::time::Duration;

use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
use outbox::{Config, EventEnvelope, ListenerError, Outbox};
use outbox_tests::{CallLog, Fresh, TestDatabase, eventually};
use tokio::sync::Semaphore;

const HOUR: Duration = Duration::from_secs(3_600);

/// A running outbox with events of every status: delivered, claimed, retried, unroutable, delayed and dead.
pub(crate) struct SampleOutbox<DB: TestDatabase> {
    pub(crate) outbox: Outbox<DB>,
    /// Blocks the listener of `Slow` until a permit is added.
    release: Arc<Semaphore>,
}

impl<DB: TestDatabase> SampleOutbox<DB> {
    /// Starts the outbox and waits until every event has reached its status.
    pub(crate) async fn start(db: &Fresh<DB>) -> Self {
        let (calls, release) = (CallLog::default(), Arc::new(Semaphore::new(0)));
        let mut config = Config::default();
        config.node_name = Some("sample".to_owned());
        config.poll_interval = HOUR;
        let outbox = outbox::builder(db.pool.clone())
            .config(config)
            .listeners(listeners(&calls, &release))
            .start()
            .await
            .unwrap();
        let events = [
            order("Placed", 1),
            order("Placed", 2),
            order("Paid", 3),
            order("Refunded", 4),
            order("Refunded", 5),
            order("Slow", 6),
            order("Forgotten", 7),
        ];
        let mut written = events.map(|event| event.build().unwrap()).to_vec();
        written.push(order("Placed", 8).deliver_after(HOUR).build().unwrap());
        // One transaction each, so that every database assigns the same sequences.
        for event in written {
            let mut tx = outbox.begin().await.unwrap();
            tx.write(event).unwrap();
            tx.commit().await.unwrap();
        }
        calls.wait_for(6).await;
        let settled = async || {
            let sql = "SELECT COUNT(*) FROM outbox_event WHERE status IN (1, 2, 3)";
            db.number(sql).await == 5
        };
        eventually("the settlements are recorded", settled).await;
        Self { outbox, release }
    }

    /// Delivers the claimed event and shuts the outbox down.
    pub(crate) async fn shutdown(self) {
        self.release.add_permits(1);
        self.outbox.shutdown().await.unwrap();
    }
}

fn order(event_type: &str, number: u32) -> outbox::event::EnvelopeBuilder<outbox::event::Dynamic> {
    EventEnvelope::builder(event_type)
        .event_id(format!("{}-{number}", event_type.to_lowercase()))
        .aggregate_type("Order")
        .aggregate_id(number.to_string())
        .tenant("acme")
        .header("reply-to", "billing")
        .payload_json(format!(r#"{{"order_id": {number},  "card": "4111-1111"}}"#))
}

fn listeners(calls: &CallLog, release: &Arc<Semaphore>) -> ListenerRegistry {
    let note = |calls: &CallLog| {
        let calls = calls.clone();
        move |delivery: &Delivery| calls.record(delivery)
    };
    let (placed, paid, refunded, slow) = (note(calls), note(calls), note(calls), note(calls));
    let release = Arc::clone(release);
    let later = ListenerOptions::new().retry_base(HOUR).retry_max(2 * HOUR);
    ListenerRegistry::new()
        .register_for("Order", "Placed", move |delivery: Delivery| {
            placed(&delivery);
            async {}
        })
        .register_with(later, "Order", "Paid", move |delivery: Delivery| {
            paid(&delivery);
            async { Err::<(), _>("the bank did not answer") }
        })
        .register_for("Order", "Refunded", move |delivery: Delivery| {
            refunded(&delivery);
            let order = delivery.envelope().aggregate_id().unwrap_or_default().to_owned();
            let text = format!("order {order} was never paid");
            async { Err::<(), _>(ListenerError::permanent(text)) }
        })
        .register_for("Order", "Slow", move |delivery: Delivery| {
            slow(&delivery);
            let release = Arc::clone(&release);
            async move {
                let _ = release.acquire().await;
            }
        })
}
