//@ error at: Money
#![allow(unused)]

use outbox::EventType;

struct Money;

fn none() -> Money {
    Money
}

#[derive(EventType)]
enum OrderEvent {
    Paid {
        #[serde(skip_deserializing, default = "none")]
        amount: Money,
    },
}

fn main() {}
