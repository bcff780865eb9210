//@ error at: Order
#![allow(unused)]

use outbox::EventType;

struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed,
}

fn main() {}
