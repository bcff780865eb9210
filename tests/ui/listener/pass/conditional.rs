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

#[cfg(any())]
#[listener(event = OrderEvent::Paid)]
async fn never(paid: NoSuchType) {}

#[listener(event = OrderEvent::Paid)]
#[cfg(any())]
async fn never_either(paid: NoSuchType) {}

#[cfg_attr(all(), listener(event = OrderEvent::Moved))]
async fn always(moved: (u64, u64)) {}

fn main() {
    let listeners = outbox::listener::ListenerRegistry::linked().build().unwrap();
    assert!(listeners.find("Order", "Paid").is_none());
    assert!(listeners.find("Order", "Moved").is_some());
}
