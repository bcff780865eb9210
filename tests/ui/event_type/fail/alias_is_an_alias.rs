//@ error at: "Old"
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    #[outbox(alias = "Old")]
    Placed,
    #[outbox(alias = "Older", alias = "Old")]
    Paid,
}

fn main() {}
