//@ error at: name = "b"
#![allow(unused)]

use outbox::AggregateType;

#[derive(AggregateType)]
#[outbox(name = "a", name = "b")]
struct Order;

fn main() {}
