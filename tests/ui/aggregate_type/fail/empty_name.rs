//@ error at: ""
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
#[outbox(name = "")]
struct Order;

fn main() {}
