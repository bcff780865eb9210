//@ error at: Money
#![allow(unused)]

use outbox::{EventType, listener};

struct Money;

#[derive(EventType)]
#[outbox(aggregate = "Order")]
enum OrderEvent {
    Paid { amount: Money },
}

#[listener(event = OrderEvent::Paid)]
async fn on_paid(paid: OrderEventPaid) {}

fn pay() {
    outbox::event(OrderEvent::Paid { amount: Money }).build();
}

fn main() {}
