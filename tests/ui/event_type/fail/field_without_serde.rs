//@ error at: Money
#![allow(unused)]

use outbox::EventType;

struct Money;

#[derive(EventType)]
enum OrderEvent {
    Paid { amount: Money },
}

fn main() {}
