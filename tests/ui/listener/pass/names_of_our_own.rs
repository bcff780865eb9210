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

// The user's names win where they are the same as ours.

struct AGGREGATE;
struct Delivery;
#[derive(serde::Serialize, serde::Deserialize)]
struct Meta {
    delivery: u8,
}

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum Odd {
    NoSuchVariant { delivery: u8, json: u8, argument_0: u8 },
    Outcome(u8),
    Tagged(Meta),
}

#[listener(event = Odd::NoSuchVariant { delivery, json, argument_0 })]
async fn submit(delivery: u8, json: u8, argument_0: u8, state: outbox::State<u8>) {}

#[listener(event = Odd::Outcome)]
async fn call(delivery: u8) {}

use Meta as Tag;

#[listener(event = Odd::Tagged)]
async fn tagged(meta: Tag) {}

fn main() {}
