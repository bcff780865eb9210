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

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum Raw {
    Tagged { r#type: String },
    Moved(u8),
}

#[listener(event = Raw::Tagged { r#type, .. })]
async fn on_tagged(r#type: String) {}

#[listener(event = Raw::Moved)]
async fn r#move(by: u8) {}

fn main() {}
