//@ error at: OrderPaid

use outbox::EventType;

struct OrderPaid;

#[derive(EventType)]
enum OrderEvent {
    Paid(OrderPaid),
}

fn main() {}
