//@ error at: OrderEvent
#![allow(unused)]

use outbox::listener;

enum OrderEvent {
    Paid(String),
}

#[listener(aggregate = "Order", event = OrderEvent::Paid)]
async fn on_paid(paid: String) {}

fn main() {}
