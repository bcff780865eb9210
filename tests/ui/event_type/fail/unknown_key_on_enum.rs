//@ error at: renam_all
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[outbox(renam_all = "snake_case")]
enum OrderEvent {
    Placed,
}

fn main() {}
