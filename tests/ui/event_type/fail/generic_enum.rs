//@ error at: T

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent<T> {
    Placed(T),
}

fn main() {}
