//@ error at: Money
#![allow(unused)]

use outbox::EventType;

struct Money;

#[derive(EventType)]
struct Refunded {
    order_id: u64,
    amount: Money,
}

fn main() {}
