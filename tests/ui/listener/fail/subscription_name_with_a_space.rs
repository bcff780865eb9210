//@ error at: "billing mail"
#![allow(unused)]

use outbox::{EventType, listener};

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Paid(String),
}

#[listener(event = OrderEvent::Paid, name = "billing mail")]
async fn on_paid(paid: String) {}

fn main() {}
