//@ error at: union
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
union Order {
    id: u64,
}

fn main() {}
