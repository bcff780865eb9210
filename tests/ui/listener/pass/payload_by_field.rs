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

#[listener(event = OrderEvent::Placed { order_id, customer })]
async fn every_field(customer: String, order_id: u64) {}

#[listener(event = OrderEvent::Placed { order_id, .. }, outbox = "one")]
async fn one_field(order_id: u64) {}

#[listener(event = OrderEvent::Placed { order_id: id, customer: _ }, outbox = "renamed")]
async fn renamed_field(id: u64) {}

#[listener(event = OrderEvent::Placed { customer, .. }, outbox = "reference")]
async fn reference(customer: &str, meta: &outbox::Meta) {}

#[listener(event = OrderEvent::Placed { .. }, outbox = "none")]
async fn no_field() {}

#[listener(event = OrderEvent::Moved { .. }, outbox = "none")]
async fn no_element() {}

#[derive(EventType)]
#[outbox(aggregate = Order)]
struct Packed {
    boxes: u8,
}

#[listener(event = Packed { boxes })]
async fn field_of_a_struct(boxes: u8) {}

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum Single {
    Only { value: u8 },
}

#[listener(event = Single::Only { value })]
async fn field_of_the_only_variant(value: u8) {}

fn main() {}
