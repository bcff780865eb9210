//@ error at: Ordr
#![allow(unused)]

use outbox::{AggregateType, EventType, listener};

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

#[derive(AggregateType)]
enum Aggregates {
    Order,
}

#[listener(aggregate = Aggregates::Ordr, event = OrderEvent::Paid)]
async fn on_paid(paid: String) {}

fn main() {}
