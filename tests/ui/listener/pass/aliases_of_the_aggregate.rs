#![allow(dead_code)]

use outbox::{AggregateType, EventType, listener};

#[derive(AggregateType)]
struct Order;

#[derive(EventType)]
#[outbox(aggregate = Order)]
enum OrderEvent {
    Placed { order_id: u64, customer: String },
    Paid(String),
    Moved(u64, u64),
    Cancelled,
}

#[derive(AggregateType)]
#[outbox(alias = "Basket")]
struct Purchase;

#[derive(EventType)]
#[outbox(aggregate = Purchase)]
enum PurchaseEvent {
    Made,
}

#[listener(aggregate = "Purchase", event = PurchaseEvent::Made)]
async fn on_made() {}

fn main() {
    let listeners = outbox::listener::ListenerRegistry::linked().build().unwrap();
    assert!(listeners.find("Basket", "Made").is_some());
    assert!(listeners.find("Purchase", "Made").is_some());
}
