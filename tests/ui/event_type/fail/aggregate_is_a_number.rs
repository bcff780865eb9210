//@ error at: 5
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[outbox(aggregate = 5)]
enum OrderEvent {
    Placed,
}

fn main() {}
