#![allow(dead_code)]

use outbox::{AggregateType, EventType, listener};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, customer: String },
    Paid(String),
    Moved(u64, u64),
    Cancelled,
}

use outbox::{EventEnvelope, Meta, State};

struct Mailer;

/// Sends a receipt.
#[listener(event = OrderEvent::Paid)]
#[must_use]
#[inline]
pub(crate) async fn send_receipt(paid: String, mailer: State<Mailer>, meta: Meta) -> outbox::ListenerResult {
    assert_eq!(paid, "7");
    assert_eq!(meta.attempts(), 3);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let envelope = EventEnvelope::json("Paid", "{}").unwrap();
    let meta = Meta::new(envelope, 3);
    assert!(send_receipt("7".to_owned(), State::new(Mailer), meta).await.is_ok());
}
