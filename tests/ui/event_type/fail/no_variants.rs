//@ error at: OrderEvent

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {}

fn main() {}
