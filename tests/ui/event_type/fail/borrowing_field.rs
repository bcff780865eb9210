//@ error at: &'static str
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed { customer: &'static str },
}

fn main() {}
