//@ error at: "placed "
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(name = "placed ")]
    Placed,
}

fn main() {}
