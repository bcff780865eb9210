//! Orders and their events.

use outbox::event::EventId;
use outbox::{AggregateType, EventType, Tx};
use sqlx::Sqlite;
use thiserror::Error;

pub(crate) const SCHEMA: &str =
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL, state TEXT NOT NULL);";

#[derive(AggregateType)]
pub(crate) struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
pub(crate) enum OrderEvent {
    Placed {
        #[outbox(aggregate_id)]
        order_id: i64,
        cents: i64,
    },
    Cancelled {
        #[outbox(aggregate_id)]
        order_id: i64,
    },
}

#[derive(Debug, Error)]
pub(crate) enum OrderError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Outbox(#[from] outbox::Error),
}

type Result<T = (), E = OrderError> = std::result::Result<T, E>;

/// Stores an order and writes one event. Who receives it is not known here. Returns the id of the event, unless a hook
/// suppressed it.
pub(crate) async fn place(
    tx: &mut Tx<Sqlite>,
    order_id: i64,
    cents: i64,
) -> Result<Option<EventId>> {
    let insert = sqlx::query("INSERT INTO orders VALUES (?, ?, 'placed')");
    insert.bind(order_id).bind(cents).execute(&mut **tx).await?;
    Ok(tx.write(OrderEvent::Placed { order_id, cents })?)
}

pub(crate) async fn cancel(tx: &mut Tx<Sqlite>, order_id: i64) -> Result<Option<EventId>> {
    let update = sqlx::query("UPDATE orders SET state = 'cancelled' WHERE id = ?");
    update.bind(order_id).execute(&mut **tx).await?;
    Ok(tx.write(OrderEvent::Cancelled { order_id })?)
}
