//@ error at: name = "b"
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(name = "a", name = "b")]
    Placed,
}

fn main() {}
