//@ error at: Tx<
#![allow(unused)]

use outbox::{AggregateType, EventType, Tx, listener};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, total_cents: u64 },
    Paid(String),
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(paid: String, tx: &Tx<sqlx::Sqlite>) {}

fn main() {}
