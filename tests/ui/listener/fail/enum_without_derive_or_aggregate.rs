//@ error at: OrderEvent
#![allow(unused)]

use outbox::listener;

enum OrderEvent {
    Paid(String),
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(paid: String) {}

fn main() {}
