//@ error at: union
#![allow(unused)]

use outbox::EventType;

#[derive(EventType)]
union OrderEvent {
    placed: u64,
    paid: i64,
}

fn main() {}
