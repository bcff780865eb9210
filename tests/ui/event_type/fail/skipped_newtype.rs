//@ error at: skip
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
enum OrderEvent {
    Paid(#[serde(skip)] String),
}

fn main() {}
