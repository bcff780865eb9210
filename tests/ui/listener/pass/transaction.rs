//! The transaction that settles the event, together with the other arguments of a listener.

use outbox::listener::ListenerRegistry;
use outbox::{AggregateType, EventType, Meta, State, Tx, listener};
use sqlx::{MySql, Postgres, Sqlite};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, total_cents: u64 },
    Paid(String),
    Cancelled,
}

struct Stock;

#[listener(event = OrderEvent::Placed { order_id, .. })]
async fn by_field(tx: &mut Tx<Postgres>, order_id: u64) -> outbox::ListenerResult {
    sqlx::query("UPDATE orders SET placed = true WHERE id = $1")
        .bind(order_id as i64)
        .execute(&mut **tx)
        .await?;
    tx.write(OrderEvent::Cancelled)?;
    Ok(())
}

#[listener(event = OrderEvent::Paid)]
async fn in_the_middle(
    paid: &str,
    tx: &mut outbox::Tx<sqlx::Sqlite>,
    stock: State<Stock>,
    meta: Meta,
) -> Result<(), outbox::Error> {
    let _ = (paid, stock, meta);
    let part = tx.savepoint().await?;
    part.release().await
}

#[listener(event = OrderEvent::Cancelled)]
async fn alone(_: &mut Tx<MySql>) {}

fn main() {
    let registry = ListenerRegistry::linked().state(Stock).build().unwrap();
    let asks = |event| registry.find("Order", event).unwrap().tx_database().is_some();
    assert!(asks("Placed") && asks("Paid") && asks("Cancelled"));
}
