//@ error at: OrderPaid
#![allow(unused)]

use outbox::EventType;

struct OrderPaid;

#[derive(EventType)]
enum OrderEvent {
    Paid(OrderPaid),
}

fn main() {}
