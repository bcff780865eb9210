//@ error at: Ordr
#![allow(unused)]

use outbox::EventType;

#[derive(outbox::AggregateType)]
enum Aggregates {
    Order,
}

#[derive(EventType)]
#[outbox(aggregate = Aggregates::Ordr)]
enum OrderEvent {
    Placed,
}

fn main() {}
