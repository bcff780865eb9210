use std::sync::Arc;
use std::time::Duration;

use outbox::{
    Config, Delivery, EventEnvelope, ListenerError, ListenerOptions, ListenerRegistry, Outbox,
};
use outbox_tests::{CallLog, Fresh, TestDatabase, eventually};
use tokio::sync::Semaphore;

const HOUR: Duration = Duration::from_secs(3_600);

/// An outbox in the middle of the night: something was delivered, something is in hand, something waits,
/// something died.
pub(crate) struct Night<DB: TestDatabase> {
    pub(crate) outbox: Outbox<DB>,
    /// Holds the listener of `Slow`.
    gate: Arc<Semaphore>,
}

impl<DB: TestDatabase> Night<DB> {
    /// Runs it until everything has come to its place.
    pub(crate) async fn falls(db: &Fresh<DB>) -> Self {
        let (heard, gate) = (CallLog::default(), Arc::new(Semaphore::new(0)));
        let mut config = Config::default();
        config.node_name = Some("night".to_owned());
        config.poller.interval = HOUR;
        let outbox = outbox::builder(db.pool.clone())
            .config(config)
            .listeners(listeners(&heard, &gate))
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
        // One by one, so that every database counts them in the same way.
        for event in written {
            let mut tx = outbox.begin().await.unwrap();
            tx.write(event).unwrap();
            tx.commit().await.unwrap();
        }
        heard.wait_for(6).await;
        let ended = async || {
            let sql = "SELECT COUNT(*) FROM outbox_event WHERE status IN (1, 2, 3)";
            db.number(sql).await == 5
        };
        eventually("what was heard is recorded", ended).await;
        Self { outbox, gate }
    }

    /// Everybody goes home; what is in hand is delivered.
    pub(crate) async fn ends(self) {
        self.gate.add_permits(1);
        self.outbox.shutdown().await.unwrap();
    }
}

fn order(event_type: &str, number: u32) -> outbox::EnvelopeBuilder<outbox::Dynamic> {
    EventEnvelope::builder(event_type)
        .event_id(format!("{}-{number}", event_type.to_lowercase()))
        .aggregate_type("Order")
        .aggregate_id(number.to_string())
        .tenant("acme")
        .header("reply-to", "billing")
        .payload_json(format!(r#"{{"order_id": {number},  "card": "4111-1111"}}"#))
}

fn listeners(heard: &CallLog, gate: &Arc<Semaphore>) -> ListenerRegistry {
    let note = |heard: &CallLog| {
        let heard = heard.clone();
        move |delivery: &Delivery| heard.record(delivery)
    };
    let (placed, paid, refunded, slow) = (note(heard), note(heard), note(heard), note(heard));
    let gate = Arc::clone(gate);
    let later = ListenerOptions::DEFAULT.retry_base(HOUR).retry_max(2 * HOUR);
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
            let gate = Arc::clone(&gate);
            async move {
                let _ = gate.acquire().await;
            }
        })
}
