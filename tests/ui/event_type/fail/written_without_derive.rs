//@ error at: OrderEvent::Placed
#![allow(unused)]

enum OrderEvent {
    Placed,
}

fn main() {
    outbox::event(OrderEvent::Placed);
}
