//@ error at: "SnakeCase"
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
#[outbox(rename_all = "SnakeCase")]
enum OrderEvent {
    Placed,
}

fn main() {}
