//@ error at: "Paid"
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Paid,
    #[outbox(name = "Paid")]
    Settled,
}

fn main() {}
