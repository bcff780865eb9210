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

#[listener(
    aggregate = Order,
    event = OrderEvent::Paid,
    outbox = ["orders", "audit"],
    retry(max_attempts = 5, base = "200ms", max = "5m"),
    timeout = "30s",
    concurrency = 2,
)]
async fn everything(paid: String) {}

#[listener(event = OrderEvent::Paid, timeout = "none", retry())]
async fn endless(paid: String) {}

fn main() {
    let listeners = outbox::listener::ListenerRegistry::linked_for("audit").build().unwrap();
    let options = *listeners.find("Order", "Paid").unwrap().options();
    assert_eq!(options.max_attempts, Some(5));
    assert_eq!(options.retry_base, Some(std::time::Duration::from_millis(200)));
    assert_eq!(options.retry_max, Some(std::time::Duration::from_secs(300)));
    let limit = std::time::Duration::from_secs(30);
    assert_eq!(options.timeout, Some(outbox::listener::Timeout::After(limit)));
    assert_eq!(options.concurrency, Some(2));
    let listeners = outbox::listener::ListenerRegistry::linked().build().unwrap();
    let options = *listeners.find("Order", "Paid").unwrap().options();
    assert_eq!(options.timeout, Some(outbox::listener::Timeout::Never));
    assert_eq!(options.max_attempts, None);
}
