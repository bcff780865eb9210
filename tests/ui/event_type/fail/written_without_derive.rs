//@ error at: OrderEvent::Placed

enum OrderEvent {
    Placed,
}

fn main() {
    outbox::event(OrderEvent::Placed);
}
