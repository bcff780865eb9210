//@ error at: Point
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

struct Point {
    x: u8,
}

#[listener(event = OrderEvent::Placed { .. })]
async fn on_placed(Point { x }: Point) {}

fn main() {}
