//@ error at: ""
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[outbox(aggregate = "")]
enum OrderEvent {
    Placed,
}

fn main() {}
