//@ error at: "snake"
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
#[outbox(rename_all = "snake")]
enum Aggregates {
    Order,
}

fn main() {}
