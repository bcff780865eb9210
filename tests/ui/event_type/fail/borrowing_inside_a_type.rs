//@ error at: Option<&'static str>
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Placed { customer: Option<&'static str> },
}

fn main() {}
