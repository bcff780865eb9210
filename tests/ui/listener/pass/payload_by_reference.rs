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

#[listener(event = OrderEvent::Placed)]
async fn generated_struct(placed: &OrderEventPlaced) {}

#[listener(event = OrderEvent::Paid)]
async fn inner(paid: &String) {}

#[listener(event = OrderEvent::Paid, outbox = "slice")]
async fn slice(paid: &str) {}

#[listener(event = OrderEvent::Moved)]
async fn tuple((from, to): &(u64, u64)) {}

#[listener(event = OrderEvent::Cancelled)]
async fn whole(event: &OrderEvent) {}

#[listener(aggregate = Order, event = "Picked")]
async fn lines<'a>(lines: &'a [String]) {}

fn main() {}
