//! The listeners. An order that is placed has three of them and the audit; each has a row of its own.

use outbox::listener::Delivery;
use outbox::{ListenerResult, State, listener};

use crate::departments::{Billing, Log};
use crate::orders::OrderEvent;

/// The unnamed listener of the event.
#[listener(event = OrderEvent::Placed { order_id, .. })]
async fn reserve(order_id: i64, log: State<Log>) {
    log.add(format!("stock: reserve order {order_id}"));
}

#[listener(event = OrderEvent::Cancelled { order_id })]
async fn release(order_id: i64, log: State<Log>) {
    log.add(format!("stock: release order {order_id}"));
}

/// If it fails, it is retried alone: the others are not called again.
#[listener(
    event = OrderEvent::Placed { order_id, cents },
    name = "billing",
    retry(max_attempts = 5, base = "50ms", max = "100ms")
)]
async fn invoice(
    order_id: i64,
    cents: i64,
    billing: State<Billing>,
    log: State<Log>,
) -> ListenerResult {
    let result = billing.invoice();
    let outcome = match &result {
        Ok(()) => format!("{cents} cents"),
        Err(error) => error.to_string(),
    };
    log.add(format!("billing: invoice of order {order_id}: {outcome}"));
    Ok(result?)
}

#[listener(event = OrderEvent::Placed { order_id, .. }, name = "mail")]
async fn confirm(order_id: i64, log: State<Log>) {
    log.add(format!("mail: confirm order {order_id}"));
}

/// Receives the events of every type, typed or not. `main.rs` registers it as a forward.
pub(crate) async fn audit(delivery: Delivery) -> ListenerResult {
    let event = delivery.envelope();
    let (kind, id) = (event.event_type(), event.aggregate_id().unwrap_or("-"));
    delivery.state::<Log>()?.add(format!("audit: {kind} {id}"));
    Ok(())
}
