//! The listeners of the shop.

use outbox::{ListenerError, State, Tx, listener};
use sqlx::Sqlite;

use crate::mail::Mailer;
use crate::orders::{self, OrderError, OrderEvent, OrderEventPlaced};

#[listener(event = OrderEvent::Placed)]
async fn confirm(placed: OrderEventPlaced, mailer: State<Mailer>) -> outbox::ListenerResult {
    let text = format!("thank you; please pay {} cents", placed.total_cents);
    Ok(mailer.0.send(placed.order_id, &text)?)
}

#[listener(event = OrderEvent::Paid { order_id }, retry(max_attempts = 5, base = "1m", max = "1h"))]
async fn send_receipt(order_id: i64, mailer: State<Mailer>) -> outbox::ListenerResult {
    Ok(mailer.0.send(order_id, "here is your receipt")?)
}

#[listener(event = OrderEvent::Cancelled { order_id })]
async fn notify_cancelled(order_id: i64, mailer: State<Mailer>) -> outbox::ListenerResult {
    // Opens the circuit breaker of this listener: its events wait until the mail server is reachable.
    let sent = mailer.0.send(order_id, "your order is cancelled");
    sent.map_err(ListenerError::unreachable)
}

/// Cancels an unpaid order in the transaction that settles this event, so exactly once.
#[listener(event = OrderEvent::PaymentDue { order_id })]
async fn cancel_unpaid(order_id: i64, tx: &mut Tx<Sqlite>) -> outbox::ListenerResult {
    match orders::cancel(tx, order_id).await {
        // The order was already paid or cancelled.
        Err(OrderError::NotOpen(_)) => Ok(()),
        cancelled => Ok(cancelled?),
    }
}
