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

#[listener(event = OrderEvent::Placed { order_id, .. })]
async fn order_id(order_id: u64) {}

fn main() {}
