//@ error at: theirs::Tx<u8>
#![allow(unused)]

use outbox::{AggregateType, EventType, listener};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Paid(String),
}

mod theirs {
    pub struct Tx<T>(T);
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(paid: String, tx: &mut theirs::Tx<u8>) {}

fn main() {}
