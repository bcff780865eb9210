//@ error at: "Order"
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
enum Aggregates {
    Order,
    #[outbox(name = "Order")]
    Basket,
}

fn main() {}
