//@ error at: "Placed"
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(alias = "Placed")]
    Placed,
}

fn main() {}
