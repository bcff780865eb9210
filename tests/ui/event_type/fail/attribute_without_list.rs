//@ error at: outbox
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[outbox = "order"]
enum OrderEvent {
    Placed,
}

fn main() {}
