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
async fn generated_struct(placed: OrderEventPlaced) {
    let _: (u64, String) = (placed.order_id, placed.customer);
}

#[listener(event = OrderEvent::Paid, outbox = "inner")]
async fn inner(paid: String) {}

#[listener(event = OrderEvent::Moved, outbox = "tuple")]
async fn tuple((from, to): (u64, u64)) {}

#[listener(event = OrderEvent::Cancelled, outbox = "nothing")]
async fn nothing() {}

#[listener(event = OrderEvent::Cancelled, outbox = "unit")]
async fn unit((): ()) {}

#[listener(event = OrderEvent::Paid, outbox = "whole")]
async fn whole(event: OrderEvent) {}

#[listener(event = OrderEvent::Cancelled, outbox = "whole")]
async fn whole_without_payload(event: OrderEvent) {}

fn main() {}
