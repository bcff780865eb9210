//@ error at: aggregate
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
#[outbox(aggregate = Shop)]
struct Order;

fn main() {}
