//@ error at: OrderEvent::Paid
#![allow(unused)]

use outbox::{EventType, listener};

#[derive(EventType)]
enum OrderEvent {
    Paid(String),
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(paid: String) {}

fn main() {}
