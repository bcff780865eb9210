//@ error at: Money
#![allow(unused)]

use outbox::EventType;

#[derive(serde::Deserialize)]
struct Money;

#[derive(EventType)]
enum OrderEvent {
    Paid { amount: Money },
}

fn main() {}
