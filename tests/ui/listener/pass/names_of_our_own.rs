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

// Names of the user that are also used in the generated code.

struct AGGREGATE;
struct Delivery;
#[derive(serde::Serialize, serde::Deserialize)]
struct Meta {
    delivery: u8,
}

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum Conflicting {
    NoSuchVariant { delivery: u8, json: u8, argument_0: u8 },
    Outcome(u8),
    Tagged(Meta),
}

#[listener(event = Conflicting::NoSuchVariant { delivery, json, argument_0 })]
async fn submit(delivery: u8, json: u8, argument_0: u8, state: outbox::State<u8>) {}

#[listener(event = Conflicting::Outcome)]
async fn call(delivery: u8) {}

use Meta as Tag;

#[listener(event = Conflicting::Tagged)]
async fn tagged(meta: Tag) {}

fn main() {}
