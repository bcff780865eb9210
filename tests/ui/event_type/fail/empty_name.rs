//@ error at: ""
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(name = "")]
    Placed,
}

fn main() {}
