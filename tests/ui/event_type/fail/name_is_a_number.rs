//@ error at: 5
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(name = 5)]
    Placed,
}

fn main() {}
