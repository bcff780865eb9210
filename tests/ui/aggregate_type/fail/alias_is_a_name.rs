//@ error at: "Order"
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
enum Aggregates {
    Order,
    #[outbox(alias = "Order")]
    Basket,
}

fn main() {}
