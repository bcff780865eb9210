//@ error at: OrderEvent
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

#[listener(event = OrderEvent::Moved)]
async fn on_moved(moved: (u64, u64), event: OrderEvent) {}

fn main() {}
