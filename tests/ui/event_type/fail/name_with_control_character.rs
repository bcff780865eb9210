//@ error at: "pla\0ced"
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(name = "pla\0ced")]
    Placed,
}

fn main() {}
