//@ error at: "Billing"
#![allow(unused)]

use outbox::{EventType, listener};

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Paid(String),
}

#[listener(event = OrderEvent::Paid, name = "Billing")]
async fn on_paid(paid: String) {}

fn main() {}
