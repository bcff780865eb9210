//@ error at: Payd
#![allow(unused)]

use outbox::{AggregateType, EventType, Meta, listener};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, total_cents: u64 },
    Paid(String),
    Moved(u64, u64),
    Cancelled,
}

#[listener(event = OrderEvent::Payd)]
async fn on_paid(meta: Meta, paid: String, other: u64) {}

fn main() {}
