//@ error at: Money
#![allow(unused)]

use outbox::EventType;

struct Money;

#[derive(EventType)]
enum OrderEvent {
    Refunded(u64, #[serde(default)] Option<Money>),
}

fn main() {}
