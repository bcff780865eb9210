//! Orders and their events.

use std::time::Duration;

use outbox::{AggregateType, EventType, Tx};
use sqlx::Sqlite;
use thiserror::Error;

pub(crate) const SCHEMA: &str =
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, total_cents INTEGER, state TEXT NOT NULL)";

/// How long a customer has to pay.
pub(crate) const TIME_TO_PAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(AggregateType)]
pub(crate) struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
pub(crate) enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: i64,
        total_cents: i64,
    },
    /// The time to pay has passed.
    PaymentDue {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
    Paid {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
    Cancelled {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
}

#[derive(Debug, Error)]
pub(crate) enum OrderError {
    #[error("order {0} is not open")]
    NotOpen(i64),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Outbox(#[from] outbox::Error),
}

type Result<T = (), E = OrderError> = std::result::Result<T, E>;

/// Places an order. It is open until it is paid or cancelled.
pub(crate) async fn place(tx: &mut Tx<Sqlite>, order_id: i64, total_cents: i64) -> Result {
    let order = sqlx::query("INSERT INTO orders VALUES (?, ?, 'open')");
    order.bind(order_id).bind(total_cents).execute(&mut **tx).await?;
    tx.write(OrderEvent::Placed { order_id, total_cents })?;
    tx.write(outbox::event(OrderEvent::PaymentDue { order_id }).deliver_after(TIME_TO_PAY))?;
    Ok(())
}

/// Marks an open order as paid.
pub(crate) async fn pay(tx: &mut Tx<Sqlite>, order_id: i64) -> Result {
    close(tx, order_id, "paid").await?;
    tx.write(OrderEvent::Paid { order_id })?;
    Ok(())
}

/// Cancels an open order.
pub(crate) async fn cancel(tx: &mut Tx<Sqlite>, order_id: i64) -> Result {
    close(tx, order_id, "cancelled").await?;
    tx.write(OrderEvent::Cancelled { order_id })?;
    Ok(())
}

async fn close(tx: &mut Tx<Sqlite>, order_id: i64, state: &str) -> Result {
    let close = sqlx::query("UPDATE orders SET state = ? WHERE id = ? AND state = 'open'");
    let closed = close.bind(state).bind(order_id).execute(&mut **tx).await?;
    if closed.rows_affected() == 0 { Err(OrderError::NotOpen(order_id)) } else { Ok(()) }
}
