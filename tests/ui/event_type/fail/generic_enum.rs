//@ error at: T
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent<T> {
    Placed(T),
}

fn main() {}
