//@ error at: "Paid"
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(alias = "Paid")]
    Placed,
    Paid,
}

fn main() {}
