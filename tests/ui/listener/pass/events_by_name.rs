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

use serde::Deserialize;

#[derive(Deserialize)]
struct Picked {
    shelf: u8,
}

#[listener(aggregate = outbox::event::Global, event = "UserCreated")]
async fn any_json(user: serde_json::Value) {}

#[listener(aggregate = "Warehouse", event = "picked")]
async fn own_type(picked: Picked) {}

#[listener(aggregate = Order, event = "Archived")]
async fn no_payload() {}

fn main() {}
